"""Tables of benchmarks/fetch.py."""

from __future__ import annotations

import statistics

from benchmarks import _goals as goals
from benchmarks import _names as names
from benchmarks._goals import Readings
from benchmarks._machine import hardware, versions
from benchmarks._reading import Reading
from benchmarks._topics import SHAPES, Filled

BUSY = 10
"""Percent of all cores. If other processes take more, the figures are not reliable."""
ANCHORS_TEXT = (
    "Limit: a blocking socket that receives the topic and reads only the lengths of batches, "
    "with fetches of 4 MiB a partition, or of kohort's default sizes. Bare decoder: kohort's own "
    "decoder, fed by a blocking socket in a second thread, with responses of 4 MiB, without a "
    "group, with CRC checks. The share of the limit compares rates. The last column but one "
    "compares CPU a record with the bare decoder for Arrow if the client reads columns, else with "
    "the one for records. The goals take the bare decoder as their anchor for CPU."
)


class Run:
    """Readings of the topics with one number of partitions.

    ``others`` is the percentage of all cores that other processes took, at each reading.
    """

    def __init__(
        self, partitions: int, filled: list[Filled], readings: Readings, others: list[float]
    ) -> None:
        self.partitions = partitions
        self.filled = filled
        self.readings = readings
        self.others = others

    @property
    def rounds(self) -> int:
        """Highest number of readings of a client on a topic."""
        return max(map(len, self.readings.values()), default=0)

    @property
    def title(self) -> str:
        return "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"

    def text(self) -> str:
        """Return the goals and the table of each topic as Markdown."""
        sizes = ", ".join(f"{each.topic} {each.records:,}" for each in self.filled)
        parts = [
            f"## {self.title}",
            f"Records of each topic: {sizes}. Medians of {self.rounds} rounds. {self._load()}",
            goals.table(self.readings),
        ]
        for name, shape in SHAPES.items():
            if rows := self._table(name):
                parts += [f"### {shape.text}, {self.title}", rows]
        return "\n\n".join(parts)

    def _table(self, topic: str) -> str:
        lines = [
            "| client | thousand records/s | best | of the limit | CPU us/record "
            "| x bare decoder | peak MB |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        limit = self._median(names.LIMIT, topic, "rate")
        for name in names.EVERY:
            done = self.readings.get((name, topic))
            if not done:
                continue
            bare = names.BARE_ARROW if name in names.TABLES else names.BARE_RECORDS
            looks = name not in (names.LIMIT, names.LIMIT_DEFAULT)
            cpu = statistics.median(reading.cpu_us for reading in done)
            rate = statistics.median(reading.rate for reading in done)
            cells = [
                f"{rate / 1000:,.0f}" if rate else "",
                f"{max(reading.rate for reading in done) / 1000:,.0f}" if rate else "",
                _ratio(rate, limit) if rate else "",
                f"{cpu:.3f}" if cpu else "",
                _ratio(cpu, self._median(bare, topic, "cpu_us") if looks else None),
                f"{statistics.median(reading.peak_mb for reading in done):.0f}",
            ]
            lines.append(f"| {' | '.join([name, *cells])} |")
        return "\n".join(lines) if len(lines) > 2 else ""

    def _median(self, client: str, topic: str, field: str) -> float | None:
        done: list[Reading] | None = self.readings.get((client, topic))
        return statistics.median(getattr(each, field) for each in done) if done else None

    def _load(self) -> str:
        share = statistics.median(self.others)
        state = "quiet" if share < BUSY else "**busy**"
        return (
            f"The machine was {state}: other processes took {share:.0f} % of its cores (median), "
            f"{max(self.others):.0f} % at most."
        )


def _ratio(value: float, anchor: float | None) -> str:
    return f"{value / anchor:.2f}" if anchor else ""


def setting(cluster: str) -> str:
    """Return the machine, the versions and the terms of the tables."""
    packages = "anyio", "pyarrow", "confluent-kafka", "aiokafka", "kafka-python"
    found = "; ".join([hardware(), *versions(*packages, java=True, go=True)])
    return (
        f"{found}; franz-go as of tests/interop/go/go.mod; {cluster} on the same machine.\n\n"
        "Each client reads a whole topic as the only member of a new group. Tuned: "
        "`fetch.queue.backoff.ms=1`. confluent-kafka reads with `consume(500)`. Rate and CPU count "
        "after the first batch, up to the last record; empty if the topic is one batch.\n\n"
        f"{ANCHORS_TEXT}"
    )
