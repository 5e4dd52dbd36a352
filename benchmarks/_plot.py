"""Bar charts as SVG, written without a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, LABEL, VALUE = 400, 180, 60
BAR, GAP, HEAD = 14, 4, 34
COLUMNS = 2
OURS, OTHER = "#1f6feb", "#9aa4b2"


class Bar(NamedTuple):
    """Bar with a line from ``least`` to ``most`` over it."""

    name: str
    value: float
    least: float
    most: float
    ours: bool


def svg(panels: Mapping[str, Sequence[Bar]], unit: str) -> str:
    """Return a panel for each title, each with a separate scale."""
    rows = [list(panels.items())[at : at + COLUMNS] for at in range(0, len(panels), COLUMNS)]
    parts: list[str] = []
    top = 0
    for row in rows:
        for column, (title, bars) in enumerate(row):
            inner = _panel(title, bars, unit)
            parts.append(f'<g transform="translate({column * WIDTH + 10} {top + 10})">{inner}</g>')
        top += HEAD + max(len(bars) for _, bars in row) * (BAR + GAP) + 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH + 20}" height="{top}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _panel(title: str, bars: Sequence[Bar], unit: str) -> str:
    parts = [f'<text x="0" y="14" font-size="13" font-weight="bold">{escape(title)}, {unit}</text>']
    room = WIDTH - LABEL - VALUE - 20
    scale = room / max((bar.most for bar in bars), default=1.0)
    for number, bar in enumerate(bars):
        y = HEAD - 8 + number * (BAR + GAP)
        middle, text = y + BAR / 2, y + BAR - 3
        parts += [
            f'<text x="{LABEL - 6}" y="{text}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{bar.value * scale:.1f}" height="{BAR}" '
            f'fill="{OURS if bar.ours else OTHER}"/>',
            f'<path d="M{LABEL + bar.least * scale:.1f} {middle} H{LABEL + bar.most * scale:.1f}" '
            'stroke="black"/>',
            f'<text x="{LABEL + bar.most * scale + 5:.1f}" y="{text}">{bar.value:,.0f}</text>',
        ]
    return "\n".join(parts)
