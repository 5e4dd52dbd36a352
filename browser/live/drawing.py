"""The timeline of a group as SVG: a row for each partition, and a bar for each owner.

The colours are those of classes, which the style sheet of the page has for light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from browser.live.history import Span

ROW: Final = 24
LEFT: Final = 30
TOP: Final = 52
BOTTOM: Final = 24
COLOURS: Final = 6
"""Number of classes for members: ``live-owner-0`` and so on."""
_TICKS: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_LABEL_ROWS: Final = (TOP - 40, TOP - 24, TOP - 8)
"""Lowest point of each row of labels above the bars."""
_LETTER: Final = 7
"""Width of a letter of a label in pixels."""
_PER_TICK: Final = 70
"""Pixels between two times of the axis, at least."""


class Mark(NamedTuple):
    """A moment to name above the rows, such as the kill of a member."""

    at_ms: int
    text: str


class Window(NamedTuple):
    """The shown time and the width of the drawing in pixels."""

    begin_ms: int
    end_ms: int
    width: int

    def x(self, at_ms: float) -> float:
        """Return the place of a time."""
        share = (at_ms - self.begin_ms) / max(self.end_ms - self.begin_ms, 1)
        return round(LEFT + min(max(share, 0.0), 1.0) * (self.width - LEFT - 4), 1)


class Group(NamedTuple):
    """Contents of a timeline. Times are shown in seconds after ``zero_ms``."""

    spans: Sequence[Span]
    marks: Sequence[Mark]
    members: Sequence[str]
    """Names in the order of their colours."""
    partitions: int
    zero_ms: int


def timeline(group: Group, window: Window) -> str:
    """Return the SVG."""
    partitions, zero_ms = group.partitions, group.zero_ms
    height = TOP + ROW * partitions + BOTTOM
    shown = [span for span in group.spans if (span.end_ms or window.end_ms) > window.begin_ms]
    colours = {name: number % COLOURS for number, name in enumerate(group.members)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {window.width} {height}" '
        f'width="{window.width}" height="{height}" role="img" class="live-timeline" '
        'aria-labelledby="live-timeline-title live-timeline-text">',
        '<title id="live-timeline-title">Owner of each partition over time</title>',
        f'<desc id="live-timeline-text">{escape(_description(shown, zero_ms))}</desc>',
        *_axis(window, zero_ms, height),
    ]
    for number in range(partitions):
        y = TOP + ROW * number
        lines.append(f'<text class="label" x="4" y="{y + 16}">{number}</text>')
        lines.append(
            f'<rect class="nobody" x="{LEFT}" y="{y + 3}" width="{window.width - LEFT - 4}" '
            f'height="{ROW - 6}"/>'
        )
    for span in shown:
        lines.extend(_bar(span, colours[span.owner], window))
    lines.extend(_marks(group.marks, window, height))
    return "\n".join([*lines, "</svg>"])


def _bar(span: Span, colour: int, window: Window) -> Iterator[str]:
    left = window.x(span.begin_ms)
    right = window.x(window.end_ms if span.end_ms is None else span.end_ms)
    y = TOP + ROW * span.partition
    yield (
        f'<rect class="live-owner-{colour}" x="{left}" y="{y + 3}" '
        f'width="{max(round(right - left, 1), 1)}" height="{ROW - 6}" rx="3"/>'
    )
    if right - left > 10 + 8 * len(span.owner):
        yield f'<text class="owner" x="{left + 6}" y="{y + 16}">{escape(span.owner)}</text>'


def _marks(marks: Iterable[Mark], window: Window, height: int) -> Iterator[str]:
    """Yield a line for each mark, and its label in the lowest row that has room for it."""
    ends = [0.0] * len(_LABEL_ROWS)
    for mark in marks:
        if mark.at_ms < window.begin_ms:
            continue
        x = window.x(mark.at_ms)
        yield f'<line class="mark" x1="{x}" y1="{TOP - 4}" x2="{x}" y2="{height - BOTTOM}"/>'
        wide = _LETTER * len(mark.text)
        left = min(x, window.width - wide)
        for row in reversed(range(len(ends))):
            if ends[row] <= left:
                ends[row] = left + wide
                y = _LABEL_ROWS[row]
                yield f'<text class="label" x="{left}" y="{y}">{escape(mark.text)}</text>'
                break


def _axis(window: Window, zero_ms: int, height: int) -> Iterator[str]:
    seconds = max((window.end_ms - window.begin_ms) / 1000, 0.001)
    most = max((window.width - LEFT) // _PER_TICK, 1)
    step = next((each for each in _TICKS if seconds / each <= most), _TICKS[-1])
    first = -(-(window.begin_ms - zero_ms) // (1000 * step)) * step
    for second in range(first, int((window.end_ms - zero_ms) / 1000) + 1, step):
        x = window.x(zero_ms + 1000 * second)
        end = height - BOTTOM
        yield f'<line class="tick" x1="{x}" y1="{TOP}" x2="{x}" y2="{end + 4}"/>'
        yield (f'<text class="label" x="{x}" y="{end + 18}" text-anchor="middle">{second} s</text>')


def _description(spans: Iterable[Span], zero_ms: int) -> str:
    """Return the bars as text, for readers who do not see the drawing."""
    sentences = []
    for span in spans:
        begin = f"{(span.begin_ms - zero_ms) / 1000:.1f}"
        end = "now" if span.end_ms is None else f"{(span.end_ms - zero_ms) / 1000:.1f} s"
        sentences.append(f"Partition {span.partition}: {span.owner} from {begin} s to {end}.")
    return " ".join(sentences)
