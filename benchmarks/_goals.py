"""What the fetch path is meant to reach, and whether it has."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._read import Reading
from benchmarks._rounds import short
from benchmarks._topics import LARGE, LZ4, PLAIN, TINY

Readings = Mapping[tuple[str, str], list[Reading]]
"""(client, topic) -> a reading a round."""


class Figure(NamedTuple):
    """A figure of all rounds, and those of the single rounds."""

    value: float
    rounds: list[float]


class Goal(NamedTuple):
    """``over``: whom ``client`` is compared with; ``field``: of a Reading."""

    text: str
    client: str
    over: str | None
    topic: str
    goal: float
    floor: float
    field: str = "rate"

    @property
    def cells(self) -> set[tuple[str, str]]:
        """What has to be measured for it."""
        return {(name, self.topic) for name in (self.client, self.over) if name is not None}

    def figure(self, readings: Readings) -> Figure | None:
        """A ratio is that of the medians, and more is better; None where a side is missing.

        Of CPU it is how many times as much the other one takes.
        """
        ours = [getattr(r, self.field) for r in readings.get((self.client, self.topic), [])]
        if not ours:
            return None
        if self.over is None:
            return Figure(statistics.median(ours), ours)
        theirs = [getattr(r, self.field) for r in readings.get((self.over, self.topic), [])]
        if not theirs:
            return None
        more, less = (theirs, ours) if self.field == "cpu_us" else (ours, theirs)
        rounds = [a / b for a, b in zip(more, less, strict=False)]
        return Figure(statistics.median(more) / statistics.median(less), rounds)


def _over(text: str, client: str, over: str, topic: str, goal: float, floor: float) -> Goal:
    return Goal(text, client, over, topic, goal, floor)


GOALS = (
    _over("Arrow / confluent-kafka tuned, 100 B", names.ARROW, names.TUNED, PLAIN, 7, 4),
    _over("Arrow / confluent-kafka tuned, 250 B lz4", names.ARROW, names.TUNED, LZ4, 4.5, 3),
    _over("Arrow / confluent-kafka tuned, 1 KB", names.ARROW, names.TUNED, LARGE, 2.2, 1.5),
    _over("Arrow / Java, 100 B", names.ARROW, names.JAVA, PLAIN, 6, 3),
    _over("Arrow / franz-go, 100 B", names.ARROW, names.FRANZ, PLAIN, 2.5, 1.5),
    _over("Arrow / franz-go, 250 B lz4", names.ARROW, names.FRANZ, LZ4, 2, 1.3),
    _over("records / confluent-kafka tuned, 100 B", names.RECORDS, names.TUNED, PLAIN, 3, 2),
    _over("records / aiokafka getmany, 100 B", names.RECORDS, names.AIOKAFKA, PLAIN, 6, 4),
    _over(
        "iteration / aiokafka async for, 100 B", names.ITERATION, names.AIOKAFKA_FOR, PLAIN, 12, 6
    ),
    _over(
        "async for / aiokafka async for, 100 B", names.ASYNC_FOR, names.AIOKAFKA_FOR, PLAIN, 12, 6
    ),
    Goal(
        "CPU a record: confluent-kafka tuned / Arrow, 100 B",
        names.ARROW,
        names.TUNED,
        PLAIN,
        10,
        5,
        "cpu_us",
    ),
    _over(
        "records / confluent-kafka tuned, tiny batches", names.RECORDS, names.TUNED, TINY, 1.5, 1
    ),
    _over(
        "pure Python records / kafka-python, 100 B", names.PURE, names.KAFKA_PYTHON, PLAIN, 2.5, 2
    ),
    Goal("peak memory of records, 100 B, MB", names.RECORDS, None, PLAIN, 60, 90, "peak_mb"),
)
RECEIVE = "receiving answers of 10 MB / a blocking socket"
RECEIVE_GOAL, RECEIVE_FLOOR = 0.95, 0.85


def verdict(value: float, goal: float, floor: float) -> str:
    """Where the figure is; a goal under its floor is one for less."""
    sign = -1 if goal < floor else 1
    if sign * value >= sign * goal:
        return "reached"
    return "above the floor" if sign * value >= sign * floor else "**below the floor**"


def table(readings: Readings, receive: Figure | None) -> str:
    """As Markdown, with the goal and the floor beside each figure."""
    lines = [
        "| measure | figure | least and most of a round | goal | never below | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    rows = [(g.text, g.figure(readings), g.goal, g.floor) for g in GOALS]
    for text, figure, goal, floor in [*rows, (RECEIVE, receive, RECEIVE_GOAL, RECEIVE_FLOOR)]:
        if figure is None:
            cells = ["", "", f"{goal:g}", f"{floor:g}", "not measured"]
        else:
            rounds = f"{short(min(figure.rounds))} to {short(max(figure.rounds))}"
            told = verdict(figure.value, goal, floor)
            cells = [short(figure.value), rounds, f"{goal:g}", f"{floor:g}", told]
        lines.append(f"| {' | '.join([text, *cells])} |")
    return "\n".join(lines)
