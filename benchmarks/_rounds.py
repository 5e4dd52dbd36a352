"""Order of measurements, and their figures as text.

All take turns, so that load on the machine affects all of them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from benchmarks._machine import Others

K = TypeVar("K")
H = TypeVar("H", bound=Hashable)
N = TypeVar("N", bound=Hashable)


def turns(rounds: int, ways: Iterable[K], *, warm_up: bool = True) -> Iterator[tuple[int, K]]:
    """Yield round and way: each way once a round, in an order that changes. Round 0 warms up."""
    order = list(ways)
    for number in range(0 if warm_up else 1, rounds + 1):
        for way in order[:: 1 if number % 2 else -1]:
            yield number, way


def collect(
    rounds: int,
    cases: Iterable[H],
    measure: Callable[[H], Mapping[N, float]],
    *,
    warm_up: bool,
    seconds: float = math.inf,
) -> tuple[defaultdict[tuple[H, N], list[float]], list[float]]:
    """Measure all cases in turns, until ``seconds`` are over.

    ``measure`` returns the figures of a case by their names.
    Return the figures of each case and name, one a round, and the percentages of all cores that
    other processes took at each measurement.
    """
    figures: defaultdict[tuple[H, N], list[float]] = defaultdict(list)
    others, shares, until = Others(), [], time.monotonic() + seconds
    for number, case in turns(rounds, cases, warm_up=warm_up):
        others.share()
        found = measure(case)
        shares.append(others.share())
        shown = ", ".join(f"{name} {short(value)}" for name, value in found.items())
        print(f"round {number}, {_text(case)}: {shown}; others {shares[-1]:.0f} %", flush=True)
        for name, value in found.items() if number else ():
            figures[case, name].append(value)
        if time.monotonic() > until:
            break
    return figures, shares


def _text(case: object) -> str:
    return ", ".join(str(part) for part in case) if type(case) is tuple else str(case)


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
