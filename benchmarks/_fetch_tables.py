"""Goals and tables of benchmarks/fetch.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks._goals import Figures, Goal
from benchmarks._machine import load_of
from benchmarks._names import (
    AIOKAFKA,
    ARROW,
    ASYNC_FOR,
    ASYNC_POLL,
    BARE_ARROW,
    BARE_RECORDS,
    EVERY,
    FRANZ,
    ITERATION,
    LIMIT,
    LIMIT_DEFAULT,
    RECORDS,
    TABLES,
    TUNED,
)
from benchmarks._rounds import short, table
from benchmarks._topics import HUGE, LARGE, LZ4, PLAIN, SHAPES, ZSTD, Filled

ABOUT = (
    "Each client reads a whole topic as the only member of a new group. Tuned: "
    "`fetch.queue.backoff.ms=1`. confluent-kafka reads with `consume(500)`. Rate and CPU count "
    "after the first batch, up to the last record; empty if the topic is one batch.\n\n"
    "Limit: a blocking socket that receives the topic and reads only the lengths of batches, "
    "with fetches of 4 MiB a partition, or of kohort's default sizes. Bare decoder: kohort's own "
    "decoder, fed by a blocking socket in a second thread, with responses of 4 MiB, without a "
    "group, with CRC checks. The share of the limit compares rates. The last column but one "
    "compares CPU a record with the bare decoder for Arrow if the client reads columns, else with "
    "the one for records. The goals take the bare decoder as their anchor for CPU."
)


def _goal(
    text: str,
    client: str,
    over: str | None,
    topic: str,
    goal: float,
    floor: float,
    field: str = "rate",
) -> Goal:
    """Return the goal of a client, as a ratio to another one unless that is None."""
    compared = None if over is None else ((over, topic), field)
    return Goal(text, ((client, topic), field), compared, goal, floor)


GOALS = (
    _goal("columns / limit, 100 B", ARROW, LIMIT, PLAIN, 0.70, 0.50),
    _goal("columns / limit, 1 KB", ARROW, LIMIT, LARGE, 0.75, 0.60),
    _goal("CPU of columns / bare decoder, 100 B", ARROW, BARE_ARROW, PLAIN, 1.2, 1.6, "cpu_us"),
    _goal("CPU of columns / bare decoder, 1 KB", ARROW, BARE_ARROW, LARGE, 1.2, 1.5, "cpu_us"),
    _goal("objects / limit, 100 B", RECORDS, LIMIT, PLAIN, 0.13, 0.108),
    _goal("objects / limit, 1 KB", RECORDS, LIMIT, LARGE, 0.50, 0.38),
    _goal("objects / confluent-kafka tuned, 100 B", RECORDS, TUNED, PLAIN, 2.7, 2.0),
    _goal("objects / confluent-kafka tuned, 1 KB", RECORDS, TUNED, LARGE, 1.8, 1.4),
    _goal("objects / confluent-kafka tuned, 10 KB", RECORDS, TUNED, HUGE, 1.5, 1.1),
    _goal("async poll / aiokafka getmany, 100 B", ASYNC_POLL, AIOKAFKA, PLAIN, 6, 4),
    _goal("async poll / aiokafka getmany, 1 KB", ASYNC_POLL, AIOKAFKA, LARGE, 6, 4),
    _goal("columns / franz-go, 100 B", ARROW, FRANZ, PLAIN, 4, 3),
    _goal("columns / franz-go, 250 B lz4", ARROW, FRANZ, LZ4, 2.5, 1.8),
    _goal("columns / franz-go, 1 KB", ARROW, FRANZ, LARGE, 1.5, 1.1),
    _goal("columns / confluent-kafka tuned, 250 B zstd", ARROW, TUNED, ZSTD, 4, 3),
    _goal("columns / confluent-kafka tuned, 250 B lz4", ARROW, TUNED, LZ4, 4, 3),
    _goal("iteration / poll(), 100 B", ITERATION, RECORDS, PLAIN, 0.8, 0.65),
    _goal("async for / poll(), 100 B", ASYNC_FOR, ASYNC_POLL, PLAIN, 0.8, 0.65),
    _goal("peak memory of objects, 100 B, MB", RECORDS, None, PLAIN, 60, 90, "peak_mb"),
    _goal("peak memory of columns, 100 B, MB", ARROW, None, PLAIN, 150, 230, "peak_mb"),
)


def goals(figures: Figures) -> str:
    """Return Markdown with each figure, its rounds, its goal and its floor."""
    rows = []
    for goal in GOALS:
        if (figure := goal.figure(figures)) is None:
            rows.append([goal.text, "", "", f"{goal.goal:g}", f"{goal.floor:g}", "not measured"])
        else:
            rounds = f"{short(min(figure.rounds))} to {short(max(figure.rounds))}"
            rows.append([goal.text, short(figure.value), rounds, *goal.cells(figure.value)])
    head = "measure", "figure", "least and most of a round", "goal", "floor", ""
    return table(head, "lrrrrl", rows)


class Run(NamedTuple):
    """Figures of each (client, topic) and field, with one number of partitions.

    ``others`` is the percentage of all cores that other processes took, at each reading.
    """

    partitions: int
    filled: list[Filled]
    figures: Figures
    others: list[float]

    def text(self) -> str:
        """Return the goals and the table of each topic as Markdown."""
        title = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        rounds = max(map(len, self.figures.values()), default=0)
        sizes = ", ".join(f"{each.topic} {each.records:,}" for each in self.filled)
        parts = [
            f"## {title}",
            f"Records of each topic: {sizes}. Medians of {rounds} rounds. {load_of(self.others)}",
            goals(self.figures),
        ]
        head = "client", "thousand records/s", "best", "of the limit", "CPU us/record"
        for name, shape in SHAPES.items():
            if rows := [*self._rows(name)]:
                parts.append(f"### {shape.text}, {title}")
                parts.append(table([*head, "x bare decoder", "peak MB"], "lrrrrrr", rows))
        return "\n\n".join(parts)

    def _rows(self, topic: str) -> Iterator[list[str]]:
        limit = self._median(LIMIT, topic, "rate")
        for name in EVERY:
            rates = self.figures.get(((name, topic), "rate"))
            if not rates:
                continue
            bare = BARE_ARROW if name in TABLES else BARE_RECORDS
            looks = name not in (LIMIT, LIMIT_DEFAULT)
            rate, cpu = self._median(name, topic, "rate"), self._median(name, topic, "cpu_us")
            yield [
                name,
                f"{rate / 1000:,.0f}" if rate else "",
                f"{max(rates) / 1000:,.0f}" if rate else "",
                _ratio(rate, limit) if rate else "",
                f"{cpu:.3f}" if cpu else "",
                _ratio(cpu, self._median(bare, topic, "cpu_us") if looks else 0),
                f"{self._median(name, topic, 'peak_mb'):.0f}",
            ]

    def _median(self, client: str, topic: str, field: str) -> float:
        values = self.figures.get(((client, topic), field))
        return statistics.median(values) if values else 0.0


def _ratio(value: float, anchor: float) -> str:
    return f"{value / anchor:.2f}" if anchor else ""
