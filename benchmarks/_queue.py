"""Members of a new share group that take all records of a topic, in this process.

    python -m benchmarks._queue CLIENT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS MODE MEMBERS

MODE is implicit, explicit or received. An explicit member accepts each record by a call. All
clients have their default options, and all records are accepted when the clocks stop. The output
is that of ``benchmarks._read``. The mode "received" prints the output of the meter of that name
instead, with one implicit member.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks._consumers import CONFLUENT, KOHORT_ASYNC, WAIT_MS
from benchmarks._measured import Received, Task, end
from benchmarks._reading import Meter, touch, touch_messages

EXPLICIT, IMPLICIT, RECEIVED = "explicit", "implicit", "received"


class Job(NamedTuple):
    """Queue to empty."""

    client: str
    servers: str
    topic: str
    group: str
    records: int
    mode: str
    members: int


class Taken:
    """Records that all members have taken."""

    def __init__(self, job: Job) -> None:
        self._records = job.records
        self._meter = Meter()
        self._count = self._total = 0
        self._lock = threading.Lock()
        self.touch: Callable[[Iterable[Any]], int] = (
            touch_messages if job.client == CONFLUENT else touch
        )

    def add(self, records: Any) -> bool:
        """Read the records. Return True if these are the last ones."""
        total = self.touch(records)
        with self._lock:
            if len(records):
                self._meter.came(len(records))
            self._count += len(records)
            self._total += total
            return self._count >= self._records

    def finish(self) -> None:
        """Print the reading and exit."""
        end(**self._meter.reading(self._count, self._total)._asdict())


class Arrivals(Taken):
    """Times of arrival of records that all one member takes."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        task = Task(RECEIVED, job.client, job.servers, job.topic, job.records)
        self._received = Received(task)

    def add(self, records: Any) -> bool:
        """Note the time. Never return True, because the meter ends the process."""
        self._received.take(records)
        return False


def take(job: Job, taken: Taken) -> None:
    """Be a member of kohort until all records are taken."""
    from kohort import ShareConsumer

    consumer = ShareConsumer(job.topic, acknowledgement=acknowledgement(job), **options(job))
    is_last = False
    while not is_last:
        for records in consumer.poll(timeout_ms=WAIT_MS).values():
            is_last = taken.add(records)
            if job.mode == EXPLICIT:
                for record in records:
                    consumer.accept(record)
    consumer.commit()
    taken.finish()


async def take_async(job: Job, taken: Taken) -> None:
    """Be a member of kohort until all records are taken."""
    from kohort import AsyncShareConsumer

    consumer = AsyncShareConsumer(job.topic, acknowledgement=acknowledgement(job), **options(job))
    is_last = False
    while not is_last:
        for records in (await consumer.poll(timeout_ms=WAIT_MS)).values():
            is_last = taken.add(records)
            if job.mode == EXPLICIT:
                for record in records:
                    consumer.accept(record)
    await consumer.commit()
    taken.finish()


def take_by_confluent(job: Job, taken: Taken) -> None:
    """Be a member of confluent-kafka until all records are taken."""
    from confluent_kafka import ShareConsumer

    settings: dict[str, Any] = {
        "bootstrap.servers": job.servers,
        "group.id": job.group,
        "share.acknowledgement.mode": acknowledgement(job),
    }
    consumer = ShareConsumer(settings)
    consumer.subscribe([job.topic])
    is_last = False
    while not is_last:
        messages = consumer.poll(WAIT_MS / 1000)
        is_last = taken.add(messages)
        if job.mode == EXPLICIT:
            for message in messages:
                consumer.acknowledge(message)
    consumer.commit_sync(timeout=60)
    taken.finish()


def acknowledgement(job: Job) -> Any:
    """Return the mode of acknowledging."""
    return EXPLICIT if job.mode == EXPLICIT else IMPLICIT


def options(job: Job) -> Any:
    """Return the options of kohort."""
    return {"bootstrap_servers": job.servers, "group_id": job.group}


async def take_all_async(job: Job, taken: Taken) -> None:
    """Be all members."""
    await asyncio.gather(*(take_async(job, taken) for _ in range(job.members)))


def main() -> None:
    client, servers, topic, group, records, mode, members = sys.argv[1:]
    job = Job(client, servers, topic, group, int(records), mode, int(members))
    taken = Arrivals(job) if mode == RECEIVED else Taken(job)
    if client == KOHORT_ASYNC:
        asyncio.run(take_all_async(job, taken))
    member = take_by_confluent if client == CONFLUENT else take
    for _ in range(1, job.members):
        threading.Thread(target=member, args=(job, taken), daemon=True).start()
    member(job, taken)


if __name__ == "__main__":
    main()
