"""One reading of a topic by a client: the result and the clocks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from benchmarks._measured import cpu_s, resident_mb


class Reading(NamedTuple):
    """Result of one process.

    ``total`` is the sum of all fields (see ``_topics.checksum``), or None if the client does not
    read records. ``seconds`` and ``cpu_s`` count from the arrival of the first batch to the last
    record. ``peak_mb`` is the largest resident memory. ``first`` is the number of records of the
    first batch, which were received before the clocks started.
    """

    records: int
    total: int | None
    seconds: float
    cpu_s: float
    peak_mb: float
    first: int = 0

    @property
    def rate(self) -> float:
        """Records a second. 0 if all records came with the first batch."""
        return (self.records - self.first) / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of a record in microseconds. 0 if all records came with the first batch."""
        return self.cpu_s / max(1, self.records - self.first) * 1e6 if self.rate else 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures of the tables by their names."""
        return {"rate": self.rate, "cpu_us": self.cpu_us, "peak_mb": self.peak_mb}


class Meter:
    """Clocks of one reading."""

    def __init__(self) -> None:
        self._began = self._cpu_s = 0.0
        self._first = 0

    def came(self, records: int) -> None:
        """Start the clocks after the first batch, which has this number of records."""
        if not self._began:
            self._began, self._cpu_s, self._first = time.perf_counter(), cpu_s(), records

    def reading(self, records: int, total: int | None) -> Reading:
        """Stop all clocks and return the result."""
        seconds = time.perf_counter() - self._began
        cpu = cpu_s() - self._cpu_s
        return Reading(records, total, seconds, cpu, resident_mb("VmHWM"), self._first)


def touch(records: Iterable[Any]) -> int:
    """Read all four fields of each record and return their sum."""
    total = 0
    for record in records:
        total += len(record.key) + len(record.value) + record.offset + record.timestamp
    return total


def touch_messages(messages: Iterable[Any]) -> int:
    """Read all four fields of each message of confluent-kafka and return their sum."""
    total = 0
    for message in messages:
        total += len(message.key()) + len(message.value())
        total += message.offset() + message.timestamp()[1]
    return total


def touch_table(table: Any) -> int:
    """Read all four columns of a pyarrow.RecordBatch and return their sum."""
    import pyarrow
    import pyarrow.compute as compute

    stamps = table.column("timestamp")
    a_ms = {"ms": 1, "us": 1000}[stamps.type.unit]
    numbers = stamps.view(pyarrow.int64())
    # The sum of the differences to the first timestamp does not overflow. (pyarrow imports pandas
    # if the second argument is an int of Python instead of a scalar.)
    first = numbers[0]
    above = compute.sum(compute.subtract(numbers, first)).as_py()
    total: int = (above + first.as_py() * table.num_rows) // a_ms
    total += compute.sum(table.column("offset")).as_py()
    for name in ("key", "value"):
        total += compute.sum(compute.binary_length(table.column(name))).as_py()
    return total
