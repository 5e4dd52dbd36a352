"""Run of one consumer for some seconds, while benchmarks/profile.py samples this process.

    python -m benchmarks._profiled OUTPUT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS SECONDS

OUTPUT is "columns" for poll_arrow() or "objects" for poll(). After RECORDS records the consumer
seeks to the beginning. All fields of each record are read. Options are the defaults, except for
``fetch_max_wait_ms``, which matters at the end of the log only. The output is a line of JSON, see
:class:`Profiled`.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._reading import Ask, touch, touch_table

COLUMNS, OBJECTS = "columns", "objects"
CALLER, CONSUMER_THREAD = "caller", "consumer thread"
WAIT_MS = 1000


class Profiled(NamedTuple):
    """Work between two times of the monotonic clock, in seconds.

    ``threads`` has roles by thread id. ``cpu_s`` and ``core_s`` are CPU seconds of these threads,
    and seconds that they waited for a core. ``gil`` is the memory of the interpreter's data, which
    holds the GIL. It has the first address and the address after the last.
    """

    begin: float
    end: float
    records: int
    fetches: int
    threads: dict[str, str]
    cpu_s: dict[str, float]
    core_s: dict[str, float]
    gil: tuple[int, int]


def interpreter_data(maps: str, address: int) -> tuple[int, int]:
    """Return the bounds of the memory around ``address``, from the text of /proc/PID/maps."""
    found: tuple[int, int] | None = None
    for line in maps.splitlines():
        fields = line.split()
        first, after = (int(part, 16) for part in fields[0].split("-"))
        if first <= address < after:
            found = first, after
        elif found is not None and first == found[1] and fields[-1] != "[heap]":
            found = found[0], after  # data that starts as zeros follows in a second mapping
    assert found is not None, "the interpreter's data is not mapped"
    return found


def _gil() -> tuple[int, int]:
    runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
    return interpreter_data(Path("/proc/self/maps").read_text(), ctypes.addressof(runtime))


def _threads() -> dict[str, str]:
    """Return the role of each thread of Python, by its id."""
    roles: dict[str, str] = {}
    for thread in threading.enumerate():
        if thread is threading.main_thread():
            role = CALLER
        else:
            role = CONSUMER_THREAD if thread.name.startswith("kohort") else thread.name
        roles[str(thread.native_id)] = role
    return roles


def _scheduled() -> dict[str, tuple[float, float]]:
    """Return CPU seconds of each thread, and seconds that it waited for a core."""
    found: dict[str, tuple[float, float]] = {}
    for task in Path("/proc/self/task").iterdir():
        cpu, core, _ = (task / "schedstat").read_text().split()
        found[task.name] = int(cpu) / 1e9, int(core) / 1e9
    return found


def _since(before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    return after[0] - before[0], after[1] - before[1]


def _fetches(consumer: Any) -> int:
    return int(consumer.metrics()["consumer-fetch-manager-metrics"]["fetch-total"])


def read(output: str, ask: Ask, seconds: float) -> Profiled:
    """Read until the time is over, from the arrival of the first records on."""
    import kohort

    if output == COLUMNS:
        import pyarrow.compute  # noqa: F401  (before the clock starts)

    # A fetch at the end of the log must not hold back the first fetch after the seek.
    options = {**ask.keywords(), "fetch_max_wait_ms": 1}
    consumer: Any
    with kohort.KafkaConsumer(ask.topic, **options) as consumer:

        def poll() -> int:
            if output == COLUMNS:
                table = consumer.poll_arrow(timeout_ms=WAIT_MS)
                if table.num_rows:
                    touch_table(table)
                return int(table.num_rows)
            records = 0
            for batch in consumer.poll(timeout_ms=WAIT_MS).values():
                touch(batch)
                records += len(batch)
            return records

        total = 0
        while not (got := poll()):
            pass
        before, fetches, began = _scheduled(), _fetches(consumer), time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if got >= ask.records:
                consumer.seek_to_beginning()
                got = 0
            more = poll()
            total += more
            got += more
        after, fetched = _scheduled(), _fetches(consumer) - fetches
        threads = _threads()
    used = {tid: _since(before.get(tid, (0.0, 0.0)), after[tid]) for tid in threads}
    return Profiled(
        began,
        now,
        total,
        fetched,
        threads,
        {tid: cpu for tid, (cpu, _) in used.items()},
        {tid: core for tid, (_, core) in used.items()},
        _gil(),
    )


def main() -> None:
    output, bootstrap_servers, topic, group, records, seconds = sys.argv[1:]
    ask = Ask(bootstrap_servers, topic, group, int(records))
    print(json.dumps(read(output, ask, float(seconds))._asdict()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
