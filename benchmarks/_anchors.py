"""Anchors of benchmarks/fetch.py: programs that do less than a consumer of a group.

The limit receives a topic over a blocking socket and reads only the lengths of batches. No client
is faster on the same machine, because each has to receive the same bytes.

The bare decoder checks and decodes every record with kohort's own decoder, in the main thread. A
second thread receives with a blocking socket. It sends the next fetch before the last response is
decoded. Three buffers are used in turn. It has no group, commits nothing, and handles no errors. A
consumer costs at least as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from benchmarks._consumers import Ask
from benchmarks._raw import Sizes, raw_fetches, walk
from benchmarks._reading import Meter, Reading, touch, touch_table

if TYPE_CHECKING:
    from kohort.records import RecordSet

LARGE = Sizes(partition=4 << 20, response=10 << 20)
SMALL = Sizes(partition=1 << 20, response=4 << 20)
"""Fetch sizes of the bare decoder. Larger responses leave the caches before they are decoded."""
TABLE_BYTES = 4 << 20
"""Bytes of keys and values in one table, as in ``poll_arrow()``."""
BUFFERS = 3


def limit(ask: Ask) -> Reading:
    """Receive with large fetches."""
    return _limit(ask, LARGE)


def limit_default(ask: Ask) -> Reading:
    """Receive with fetches of kohort's default sizes."""
    from kohort.config import ConsumerConfig

    options = ConsumerConfig().fetch
    return _limit(ask, Sizes(options.max_partition_fetch_bytes, options.fetch_max_bytes))


def _limit(ask: Ask, sizes: Sizes) -> Reading:
    records = 0

    def take(_: int, offset: int, data: memoryview) -> int:
        nonlocal records
        after, _ = walk(data, offset)
        records += after - offset
        return after

    meter = Meter()
    with raw_fetches(ask.bootstrap_servers, ask.topic, sizes, take) as fetches:
        buffer = fetches.new_buffer()
        while not fetches.done:
            buffer = fetches.receive(buffer)
            meter.came(records)
    return meter.reading(records, None)


def bare_arrow(ask: Ask) -> Reading:
    """Decode into Arrow tables of the size that ``poll_arrow()`` returns."""
    import pyarrow.compute  # noqa: F401  (before the clocks start)

    from kohort.records import SizeHistory, TablePlan, allocate_in_arrow, to_arrow

    history = SizeHistory()

    def read(found: list[RecordSet]) -> tuple[int, int]:
        records = total = 0
        left = sum(each.scan.size for each in found)
        waiting = iter(found)
        each = next(waiting, None)
        while each is not None:
            plan = TablePlan(max_bytes=TABLE_BYTES, allocate=allocate_in_arrow, history=history)
            plan.expect(left)
            while each is not None and plan.has_room:
                each.add_rows_to(plan)
                if each.done:
                    left -= each.scan.size
                    each = next(waiting, None)
            if plan.rows:
                table = to_arrow(plan)
                records += table.num_rows
                total += touch_table(table)
        return records, total

    return _bare(ask, read)


def bare_records(ask: Ask) -> Reading:
    """Decode into objects, as many at a time as ``poll()`` returns."""
    from kohort.config import ConsumerConfig

    enough = ConsumerConfig().fetch.max_poll_records

    def read(found: list[RecordSet]) -> tuple[int, int]:
        records = total = 0
        for each in found:
            while not each.done:
                each.read(enough)
                records += len(each.records)
                total += touch(each.records)
        return records, total

    return _bare(ask, read)


def _bare(ask: Ask, read: Callable[[list[RecordSet]], tuple[int, int]]) -> Reading:
    """Pass the batches of each response to ``read``, which returns number and sum of records."""
    meter = Meter()
    records = total = 0
    for found in _responses(ask, SMALL):
        more, fields = read(found)
        meter.came(more)  # modules imported on first use are loaded by now
        records += more
        total += fields
    return meter.reading(records, total)


def _responses(ask: Ask, sizes: Sizes) -> Iterator[list[RecordSet]]:
    """Yield the batches of each response. The next step reuses their buffer."""
    from kohort.records import RecordSet

    free: SimpleQueue[memoryview] = SimpleQueue()
    full: SimpleQueue[tuple[memoryview, list[RecordSet]] | BaseException | None] = SimpleQueue()
    found: list[RecordSet] = []

    def take(partition: int, offset: int, data: memoryview) -> int:
        each = RecordSet(data, offset, topic=ask.topic, partition=partition)
        found.append(each)
        return each.next_offset

    def receive() -> None:
        nonlocal found
        try:
            with raw_fetches(ask.bootstrap_servers, ask.topic, sizes, take) as fetches:
                for _ in range(BUFFERS):
                    free.put(fetches.new_buffer())
                while not fetches.done:
                    found = []
                    buffer = fetches.receive(free.get())
                    full.put((buffer, found))
        except BaseException as error:
            full.put(error)
        else:
            full.put(None)

    Thread(target=receive, daemon=True).start()
    while (response := full.get()) is not None:
        if isinstance(response, BaseException):
            raise response
        buffer, sets = response
        yield sets
        for each in sets:
            each.release()
        free.put(buffer)
