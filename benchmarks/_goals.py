"""Goals of the fetch path, compared with the figures of a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._reading import Reading
from benchmarks._rounds import short
from benchmarks._topics import HUGE, LARGE, LZ4, PLAIN, ZSTD

Readings = Mapping[tuple[str, str], list[Reading]]
"""Readings of each (client, topic), one a round."""


class Figure(NamedTuple):
    """Figure of all rounds, and those of the single rounds."""

    value: float
    rounds: list[float]


class Goal(NamedTuple):
    """Goal for a figure of ``client``, as a ratio to that of ``over`` unless that is None.

    ``field`` is a field of a Reading. A goal below its floor means that less is better.
    """

    text: str
    client: str
    over: str | None
    topic: str
    goal: float
    floor: float
    field: str = "rate"

    @property
    def cells(self) -> set[tuple[str, str]]:
        """Pairs of client and topic that it needs."""
        return {(name, self.topic) for name in (self.client, self.over) if name is not None}

    def figure(self, readings: Readings) -> Figure | None:
        """Return the median, or the ratio of the medians. None without a figure of both sides."""
        ours = [getattr(r, self.field) for r in readings.get((self.client, self.topic), [])]
        if not ours or not min(ours):
            return None
        if self.over is None:
            return Figure(statistics.median(ours), ours)
        theirs = [getattr(r, self.field) for r in readings.get((self.over, self.topic), [])]
        if not theirs or not min(theirs):
            return None
        rounds = [a / b for a, b in zip(ours, theirs, strict=False)]
        return Figure(statistics.median(ours) / statistics.median(theirs), rounds)


def _cpu(text: str, client: str, over: str, topic: str, goal: float, floor: float) -> Goal:
    return Goal(text, client, over, topic, goal, floor, "cpu_us")


GOALS = (
    Goal("columns / limit, 100 B", names.ARROW, names.LIMIT, PLAIN, 0.70, 0.50),
    Goal("columns / limit, 1 KB", names.ARROW, names.LIMIT, LARGE, 0.75, 0.60),
    _cpu("CPU of columns / bare decoder, 100 B", names.ARROW, names.BARE_ARROW, PLAIN, 1.2, 1.6),
    _cpu("CPU of columns / bare decoder, 1 KB", names.ARROW, names.BARE_ARROW, LARGE, 1.2, 1.5),
    Goal("objects / limit, 100 B", names.RECORDS, names.LIMIT, PLAIN, 0.13, 0.108),
    Goal("objects / limit, 1 KB", names.RECORDS, names.LIMIT, LARGE, 0.50, 0.38),
    Goal("objects / confluent-kafka tuned, 100 B", names.RECORDS, names.TUNED, PLAIN, 2.7, 2.0),
    Goal("objects / confluent-kafka tuned, 1 KB", names.RECORDS, names.TUNED, LARGE, 1.8, 1.4),
    Goal("objects / confluent-kafka tuned, 10 KB", names.RECORDS, names.TUNED, HUGE, 1.5, 1.1),
    Goal("async poll / aiokafka getmany, 100 B", names.ASYNC_POLL, names.AIOKAFKA, PLAIN, 6, 4),
    Goal("async poll / aiokafka getmany, 1 KB", names.ASYNC_POLL, names.AIOKAFKA, LARGE, 6, 4),
    Goal("columns / franz-go, 100 B", names.ARROW, names.FRANZ, PLAIN, 4, 3),
    Goal("columns / franz-go, 250 B lz4", names.ARROW, names.FRANZ, LZ4, 2.5, 1.8),
    Goal("columns / franz-go, 1 KB", names.ARROW, names.FRANZ, LARGE, 1.5, 1.1),
    Goal("columns / confluent-kafka tuned, 250 B zstd", names.ARROW, names.TUNED, ZSTD, 4, 3),
    Goal("columns / confluent-kafka tuned, 250 B lz4", names.ARROW, names.TUNED, LZ4, 4, 3),
    Goal("iteration / poll(), 100 B", names.ITERATION, names.RECORDS, PLAIN, 0.8, 0.65),
    Goal("async for / poll(), 100 B", names.ASYNC_FOR, names.ASYNC_POLL, PLAIN, 0.8, 0.65),
    Goal("peak memory of objects, 100 B, MB", names.RECORDS, None, PLAIN, 60, 90, "peak_mb"),
    Goal("peak memory of columns, 100 B, MB", names.ARROW, None, PLAIN, 150, 230, "peak_mb"),
)


def verdict(value: float, goal: float, floor: float) -> str:
    """Compare a figure with its goal and floor. A goal below its floor means less is better."""
    sign = -1 if goal < floor else 1
    if sign * value >= sign * goal:
        return "reached"
    return "above the floor" if sign * value >= sign * floor else "**below the floor**"


def table(readings: Readings) -> str:
    """Return Markdown with each figure, its goal and its floor."""
    lines = [
        "| measure | figure | least and most of a round | goal | floor | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for goal in GOALS:
        figure = goal.figure(readings)
        bounds = [f"{goal.goal:g}", f"{goal.floor:g}"]
        if figure is None:
            cells = ["", "", *bounds, "not measured"]
        else:
            rounds = f"{short(min(figure.rounds))} to {short(max(figure.rounds))}"
            judged = verdict(figure.value, goal.goal, goal.floor)
            cells = [short(figure.value), rounds, *bounds, judged]
        lines.append(f"| {' | '.join([goal.text, *cells])} |")
    return "\n".join(lines)
