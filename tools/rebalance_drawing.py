"""Drawings of rebalances in docs/timeline.md.

Each drawing has a line for each event of a run by :mod:`tools.rebalance_run`. On the left are the
requests, responses and callbacks of two members and the coordinator. On the right is the owner of
each partition. The colours follow the light or dark setting of the reader's system.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from tools.rebalance_run import KINDS, PARTITIONS, Event, events

FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
TITLES: Final = {
    "eager": "Classic protocol, eager assignor (range)",
    "cooperative": "Classic protocol, cooperative-sticky",
    "consumer": "Consumer protocol (KIP-848)",
    "leave": "Classic protocol, cooperative-sticky",
    "kill": "Consumer protocol (KIP-848)",
}
WIDTH: Final = 690
ROW: Final = 26
TOP: Final = 92
LANES: Final = {"A": 126, "coordinator": 310, "B": 494}
"""Name of a lifeline -> its x."""

STRIPS: Final = 574
"""X of the first partition."""

STRIP: Final = 27
STYLE: Final = """
  .back { fill: #ffffff } .text { fill: #1f2328 } .dim { fill: #59636e }
  .line { stroke: #59636e } .A { fill: #0550ae; stroke: #0550ae }
  .B { fill: #bc4c00; stroke: #bc4c00 } .none { fill: #d1d9e0; stroke: none }
  .note { fill: #eef1f4; stroke: #59636e }
  text { font: 13px ui-sans-serif, system-ui, sans-serif; stroke: none }
  .head { font-weight: 600 } .mono { font-family: ui-monospace, monospace; font-size: 12px }
  .small { font-size: 12px } .in { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .text { fill: #f0f6fc } .dim { fill: #9198a1 }
    .line { stroke: #9198a1 } .A { fill: #79c0ff; stroke: #79c0ff }
    .B { fill: #ffa657; stroke: #ffa657 } .none { fill: #3d444d }
    .note { fill: #21262d; stroke: #9198a1 } .in { fill: #0d1117 }
  }
"""


def drawing(kind: str) -> str:
    """Return the SVG of a kind of rebalance."""
    found = events(kind)
    height = TOP + ROW * len(found) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        f'     aria-labelledby="title description" width="{WIDTH}" height="{height}">',
        f'<title id="title">{TITLES[kind]}: member B {KINDS[kind].change}</title>',
        f'<desc id="description">{escape(description(found))}</desc>',
        f"<style>{STYLE}</style>",
        _markers(),
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="8"/>',
        *_head(kind, height),
        *_strips(found),
    ]
    previous = ""
    for row, event in enumerate(found):
        y = TOP + ROW * row + ROW // 2
        time = f"{event.at:.2f} s"
        if time != previous:
            lines.append(f'<text class="dim mono" x="8" y="{y + 4}">{time}</text>')
        previous = time
        lines.extend(_event(event, y))
    return "\n".join([*lines, "</svg>", ""])


def description(found: list[Event]) -> str:
    """Return the events as text, for readers who do not see the drawing."""
    return " ".join(f"{each.at:.2f} s: {each.member}, {each.kind}: {each.text}." for each in found)


def _markers() -> str:
    arrow = (
        '<marker id="arrow{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path class="{0}" d="M0 0L8 4L0 8z"/></marker>'
    )
    return f"<defs>{arrow.format('A')}{arrow.format('B')}</defs>"


def _head(kind: str, height: int) -> Iterator[str]:
    yield f'<text class="text head" x="8" y="26">{TITLES[kind]}: B {KINDS[kind].change}</text>'
    for lane, x in LANES.items():
        name = lane if lane == "coordinator" else f"member {lane}"
        yield f'<text class="text head" x="{x}" y="{TOP - 20}" text-anchor="middle">{name}</text>'
        yield (
            f'<line class="line" x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height - 12}" '
            'stroke-dasharray="2 4"/>'
        )
    middle = STRIPS + PARTITIONS * STRIP // 2
    yield f'<text class="text head" x="{middle}" y="{TOP - 38}" text-anchor="middle">owner</text>'
    for number in range(PARTITIONS):
        x = STRIPS + number * STRIP + STRIP // 2 - 2
        yield f'<text class="dim" x="{x}" y="{TOP - 18}" text-anchor="middle">{number}</text>'


def _strips(found: list[Event]) -> Iterator[str]:
    """Yield a rectangle for each time that a partition has one owner, or none."""
    for number in range(PARTITIONS):
        begin = 0
        for row in range(1, len(found) + 1):
            owner = found[begin].owners[number]
            if row < len(found) and found[row].owners[number] == owner:
                continue
            x, y = STRIPS + number * STRIP, TOP + ROW * begin
            height = ROW * (row - begin)
            yield (
                f'<rect class="{owner or "none"}" x="{x}" y="{y + 1}" width="{STRIP - 4}" '
                f'height="{height - 2}" rx="3"/>'
            )
            if owner:
                yield (
                    f'<text class="in head" x="{x + STRIP // 2 - 2}" y="{y + 18}" '
                    f'text-anchor="middle">{owner}</text>'
                )
            begin = row


def _event(event: Event, y: int) -> Iterator[str]:
    member, middle = LANES[event.member], LANES["coordinator"]
    text = escape(event.text)
    if event.kind in ("callback", "note"):
        width = 116
        yield (
            f'<rect class="note" x="{member - width // 2}" y="{y - 10}" width="{width}" '
            'height="20" rx="4"/>'
        )
        yield (
            f'<text class="text small" x="{member}" y="{y + 4}" text-anchor="middle">{text}</text>'
        )
        return
    start, end = (member, middle) if event.kind == "request" else (middle, member)
    dash = "" if event.kind == "request" else ' stroke-dasharray="5 3"'
    yield (
        f'<line class="{event.member}" x1="{start}" y1="{y + 7}" x2="{end}" y2="{y + 7}"'
        f'{dash} marker-end="url(#arrow{event.member})"/>'
    )
    yield (
        f'<text class="text small" x="{(start + end) // 2}" y="{y + 2}" text-anchor="middle">'
        f"{text}</text>"
    )


def path(kind: str) -> Path:
    """Return the file of a drawing."""
    return FOLDER / f"rebalance-{kind}.svg"
