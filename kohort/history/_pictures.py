"""A history as a picture in SVG, and as one page of HTML. Neither has JavaScript or a link."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from html import escape

from kohort.history._text import commit_rates, is_numbered, missing_text, time_text
from kohort.history._timeline import GroupHistory
from kohort.types import TopicPartition

COLOURS = (
    "#4477aa",
    "#ee7733",
    "#228833",
    "#aa3377",
    "#ccaa22",
    "#33aabb",
    "#bb5566",
    "#777799",
)
"""Colours of members, by turns. They stand out on white and on black."""
MAX_ROWS = 400
"""Partitions in a picture. More would be too small to see, and the browser slow."""
_WIDTH, _LEFT, _RIGHT = 1000, 150, 20
_ROW, _TOP, _AXIS, _LAG = 20, 10, 30, 90
_STYLE = """\
.history { color-scheme: light dark; --ink: #1b1b1b; --quiet: #767676; --empty: #e4e4e4 }
@media (prefers-color-scheme: dark) {
.history { --ink: #ededed; --quiet: #9a9a9a; --empty: #3a3a3a } }
.history text { font: 12px system-ui, sans-serif; fill: var(--ink) }
.history .quiet { fill: var(--quiet) }
.history .inside { fill: #fff; pointer-events: none }
.history .empty { fill: var(--empty) }
.history line { stroke: var(--quiet) }
.history .rebalance { stroke: var(--ink); stroke-dasharray: 2 3; opacity: .6 }
.history .unknown { fill: var(--quiet); opacity: .25 }
.history polyline { fill: none; stroke: #4477aa; stroke-width: 1.5 }
"""


def to_svg(history: GroupHistory) -> str:
    """Return the picture: a strip for each partition, a colour for each member, the lag below."""
    return "\n".join(_svg(history)) + "\n"


def _svg(history: GroupHistory) -> Iterator[str]:
    partitions = sorted({each.partition for each in history.spans})
    shown = partitions[:MAX_ROWS]
    lags = _total_lag(history)
    axis = _TOP + _ROW * len(shown)
    height = (
        axis + _AXIS + (_LAG + 20 if lags else 0) + (_ROW if len(shown) < len(partitions) else 0)
    )
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="history" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="Owners of the partitions of group {_text(history.group_id)}">'
    )
    yield f"<style>{_STYLE}</style>"
    rows = {tp: _TOP + _ROW * number for number, tp in enumerate(shown)}
    for tp, y in rows.items():
        name = f"{tp.topic}-{tp.partition}"
        yield f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{_text(_cut(name))}</text>'
        yield _rect(_LEFT, y, _WIDTH - _RIGHT - _LEFT, 'class="empty"', f"{name}: no owner")
    yield from _strips(history, rows)
    yield from _between_samples(history, rows)
    if history.complete_since_ms > history.since_ms and not history.samples:
        width = _x(history, history.complete_since_ms) - _LEFT
        title = "before the compaction of the log: changes may be missing"
        yield (
            f'<rect class="unknown" x="{_LEFT}" y="{_TOP}" width="{width:.1f}" '
            f'height="{axis - _TOP}"><title>{title}</title></rect>'
        )
    for event in history.events:
        if event.kind == "rebalance":
            x = _x(history, event.at_ms)
            number = f" {event.epoch}" if is_numbered(event) else ""
            title = _text(f"{time_text(event.at_ms)}{number}: {event.text}")
            yield (
                f'<line class="rebalance" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{axis}">'
                f"<title>{title}</title></line>"
            )
    yield from _ticks(history, axis)
    if lags:
        yield from _lag_chart(history, lags, axis + _AXIS + 10)
    if len(shown) < len(partitions):
        more = f"and {len(partitions) - len(shown)} more partitions"
        yield f'<text class="quiet" x="{_LEFT}" y="{height - 6}">{more}</text>'
    yield "</svg>"


def _strips(history: GroupHistory, rows: dict[TopicPartition, int]) -> Iterator[str]:
    names, colours = history.names, _colours(history)
    for span in history.spans:
        if span.partition not in rows:
            continue
        end_ms = history.until_ms if span.end_ms is None else span.end_ms
        begin, end = _x(history, span.start_ms), _x(history, end_ms)
        y, name = rows[span.partition], names[span.member_id]
        until = "now" if span.end_ms is None else time_text(span.end_ms)
        title = (
            f"{span.partition.topic}-{span.partition.partition}: {name}, "
            f"{time_text(span.start_ms)} to {until}"
        )
        yield _rect(begin, y, max(end - begin, 0.5), f'fill="{colours[span.member_id]}"', title)
        if end - begin > 7 * len(name) + 8:
            yield f'<text class="inside" x="{begin + 4:.1f}" y="{y + 14}">{_text(name)}</text>'


def _between_samples(history: GroupHistory, rows: dict[TopicPartition, int]) -> Iterator[str]:
    """Yield a shade from the sample before each change of an owner to the one that shows it."""
    changes = {
        (span.partition, at_ms)
        for span in history.spans
        for at_ms in (span.start_ms, span.end_ms)
        if at_ms is not None and span.partition in rows
    }
    for tp, at_ms in sorted(changes):
        before = history.samples[: bisect_left(history.samples, at_ms)]
        if before:
            begin, end = _x(history, before[-1]), _x(history, at_ms)
            title = "between two samples: the owner changed here"
            yield _rect(begin, rows[tp], end - begin, 'class="unknown"', title)


def _rect(x: float, y: int, width: float, look: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 3}" {look}>'
        f"<title>{_text(title)}</title></rect>"
    )


def _ticks(history: GroupHistory, axis: int) -> Iterator[str]:
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{axis}" y2="{axis}"/>'
    span = history.until_ms - history.since_ms
    for number in range(5):
        at_ms = history.since_ms + span * number // 4
        x = _x(history, at_ms)
        text = time_text(at_ms, digits=False)[0 if span > 86_400_000 else 11 :]
        anchor = "start" if not number else "end" if number == 4 else "middle"
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axis}" y2="{axis + 5}"/>'
        yield (
            f'<text class="quiet" x="{x:.1f}" y="{axis + 19}" text-anchor="{anchor}">{text}</text>'
        )


def _lag_chart(history: GroupHistory, lags: dict[int, int], top: int) -> Iterator[str]:
    highest = max(lags.values())
    base = top + _LAG
    points = " ".join(
        f"{_x(history, at_ms):.1f},{base - (lag / highest if highest else 0) * (_LAG - 10):.1f}"
        for at_ms, lag in lags.items()
    )
    yield f'<text x="{_LEFT - 8}" y="{top + 14}" text-anchor="end">lag {highest:,}</text>'
    yield f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">0</text>'
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
    yield f'<polyline points="{points}"><title>lag of all partitions</title></polyline>'


def _total_lag(history: GroupHistory) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in history.lags:
        found[each.at_ms] = found.get(each.at_ms, 0) + each.lag
    return found


def _x(history: GroupHistory, at_ms: int) -> float:
    span = max(1, history.until_ms - history.since_ms)
    share = min(1.0, max(0.0, (at_ms - history.since_ms) / span))
    return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)


def _colours(history: GroupHistory) -> dict[str, str]:
    return {member: COLOURS[number % len(COLOURS)] for number, member in enumerate(history.members)}


def _cut(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:8]}…{name[-11:]}"


def _text(text: str) -> str:
    """Return text for SVG and HTML. Control characters, which XML does not allow, are replaced."""
    shown = "".join(each if each.isprintable() else "\ufffd" for each in text)
    return escape(shown)


# -- the page ---------------------------------------------------------------------------------

_PAGE_STYLE = """\
:root { color-scheme: light dark }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.wide { overflow-x: auto } .wide svg { min-width: 44rem; width: 100%; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top }
td:not(:last-child) { white-space: nowrap } td:last-child { min-width: 16rem }
tr + tr td { border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent) }
.chip { display: inline-block; width: .8em; height: .8em; margin-right: .5em }
"""


def to_html(history: GroupHistory) -> str:
    """Return the page: the picture, the members, each change and the commits."""
    names, colours = history.names, _colours(history)
    group = _text(history.group_id)
    begin, end = time_text(history.since_ms), time_text(history.until_ms)
    notes = [f"{history.protocol.capitalize()} protocol, {begin} to {end} UTC."]
    if missing := missing_text(history):
        notes.append(f"{missing[0].upper()}{missing[1:]}.")
    if history.unread:
        notes.append(f"{history.unread} records are in a version that this release does not know.")
    members = [
        [
            f'<span class="chip" style="background:{colours[member]}"></span>{_text(name)}',
            _text(history.members[member].host),
            _text(member),
        ]
        for member, name in names.items()
    ]
    events = [
        [
            time_text(each.at_ms),
            str(each.epoch) if is_numbered(each) else "",
            _text(each.text),
        ]
        for each in history.events
    ]
    commits = [
        [_text(f"{tp.topic}-{tp.partition}"), f"{count:,}", f"{moved:,}", f"{rate:,.1f}"]
        for tp, (count, moved, rate) in commit_rates(history).items()
    ]
    word = "Epoch" if history.protocol == "consumer" else "Generation"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>History of group {group}</title>",
            f"<style>{_PAGE_STYLE}</style>",
            f"<h1>History of group {group}</h1>",
            f"<p>{' '.join(notes)}</p>",
            f'<div class="wide">{to_svg(history)}</div>',
            *_table("Members", ["Member", "Host", "Id"], members),
            *_table("Changes", ["Time (UTC)", word, "Change"], events),
            *_table("Commits", ["Partition", "Commits", "Offsets", "Offsets/s"], commits),
            "</html>",
            "",
        ]
    )


def _table(title: str, headings: Iterable[str], rows: list[list[str]]) -> Iterator[str]:
    if not rows:
        return
    yield f'<h2>{title}</h2>\n<div class="wide"><table>'
    yield "<tr>" + "".join(f"<th>{each}</th>" for each in headings) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>"
    yield "</table></div>"
