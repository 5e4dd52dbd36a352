"""One reading of a topic by a client: the task, the result and the clocks."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

CA_VARIABLE = "BENCHMARK_SSL_CAFILE"
"""Environment variable with the path of a CA. If it is set, clients connect by TLS."""


def cafile() -> str | None:
    """Return the CA of this process's connections. None means plaintext."""
    return os.environ.get(CA_VARIABLE)


class Ask(NamedTuple):
    """Topic to read, group to join and number of records in the topic."""

    bootstrap_servers: str
    topic: str
    group: str
    records: int

    def keywords(self) -> dict[str, Any]:
        """Return the options of kohort and kafka-python."""
        security = {"security_protocol": "SSL", "ssl_cafile": ca} if (ca := cafile()) else {}
        return {
            **security,
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": True,
            "check_crcs": True,
        }


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


class Meter:
    """Clocks of one reading."""

    def __init__(self) -> None:
        self._began = self._cpu_s = 0.0
        self._first = 0

    def came(self, records: int) -> None:
        """Start the clocks after the first batch, which has this number of records."""
        if not self._began:
            self._began, self._cpu_s, self._first = time.perf_counter(), _cpu_s(), records

    def reading(self, records: int, total: int | None) -> Reading:
        """Stop all clocks and return the result."""
        seconds = time.perf_counter() - self._began
        cpu_s = _cpu_s() - self._cpu_s
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert peak is not None
        return Reading(records, total, seconds, cpu_s, int(peak[1]) / 1000, self._first)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def touch(records: Iterable[Any]) -> int:
    """Read all four fields of each record and return their sum."""
    total = 0
    for record in records:
        total += len(record.key) + len(record.value) + record.offset + record.timestamp
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
