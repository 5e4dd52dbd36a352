"""Order of measurements, and their figures as text.

All take turns, so that load on the machine affects all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

K = TypeVar("K")


def turns(rounds: int, ways: Iterable[K], *, warm_up: bool = True) -> Iterator[tuple[int, K]]:
    """Yield round and way: each way once a round, in an order that changes. Round 0 warms up."""
    order = list(ways)
    for number in range(0 if warm_up else 1, rounds + 1):
        for way in order[:: 1 if number % 2 else -1]:
            yield number, way


def spread(values: Sequence[float]) -> str:
    """Return the median, with minimum and maximum in brackets, or "" without values."""
    if len(values) < 2:
        return short(values[0]) if values else ""
    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"


def short(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], aligned: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table. ``aligned`` has a letter for each column, l or r."""
    rule = "".join(f"|{'---:' if side == 'r' else '---'}" for side in aligned)
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"{rule}|", *lines[1:]])
