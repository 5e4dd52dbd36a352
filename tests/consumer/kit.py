"""Helpers of the consumer's tests: polling until a condition holds, and recording listeners."""

from __future__ import annotations

import gc
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from kohort import (
    AsyncKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaConsumer,
    TopicPartition,
)
from kohort.errors import KafkaError
from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import LeaveGroupRequest
from kohort.testing import Cluster
from tests.support.awaited import AwaitedConsumer

Record = ConsumerRecord[Any, Any]
Partitions = frozenset[TopicPartition]
AnyConsumer = AsyncKafkaConsumer | AwaitedConsumer
"""Consumers to await. The second never suspends, so loops have checkpoints for time limits."""

QUIET = 0.25
"""Maximum share of a CPU for polling that returns no records or only errors.

It takes 2 to 15 %, as fast as the machine is at the moment. A loop without a wait takes all that
the machine has left.
"""
PATIENCE = 90.0
"""Seconds until a test fails. Working code is always faster."""
LATE_ERRORS = 2
"""Maximum number of errors that poll() raises after their cause ended."""


def poll_until(
    consumer: KafkaConsumer, holds: Callable[[], object], patience: float = PATIENCE
) -> list[Record]:
    """Poll until the predicate holds. Return the records."""
    records: list[Record] = []
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"not in time; read {records}"
        for part in consumer.poll(timeout_ms=50).values():
            records += part
    return records


def once_waiting(consumer: Any, action: Any) -> threading.Thread:
    """Call ``action`` in a new thread as soon as the consumer is inside poll()."""

    def run() -> None:
        deadline = time.monotonic() + PATIENCE
        while not consumer._driver.engine.callback_queue.is_polling and time.monotonic() < deadline:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def read(consumer: KafkaConsumer, count: int) -> list[Record]:
    """Poll until this many records arrived."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count:
        assert time.monotonic() < deadline, f"not in time; read {records}"
        for part in consumer.poll(timeout_ms=200).values():
            records += part
    return records


async def aread(consumer: AnyConsumer, count: int) -> list[Record]:
    """Poll until this many records arrived, on the async API."""
    records: list[Record] = []
    with anyio.fail_after(PATIENCE):
        while len(records) < count:
            await anyio.lowlevel.checkpoint()
            for part in (await consumer.poll(timeout_ms=200)).values():
                records += part
    return records


async def apoll_until(consumer: AnyConsumer, holds: Callable[[], object]) -> list[Record]:
    """Poll until the predicate holds, on the async API. Return the records."""
    records: list[Record] = []
    with anyio.fail_after(PATIENCE):
        while not holds():
            await anyio.lowlevel.checkpoint()
            for part in (await consumer.poll(timeout_ms=50)).values():
                records += part
    return records


def poll_error(consumer: KafkaConsumer, kind: type[Exception]) -> Any:
    """Poll until it raises an error of this type and return the error. Drop records before it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            consumer.poll(timeout_ms=200)
        except kind as error:
            return error
    raise AssertionError(f"poll() did not raise {kind.__name__}")


def poll_past(
    consumer: KafkaConsumer, kind: type[KafkaError], holds: Callable[[], object]
) -> list[Record]:
    """Poll until the predicate holds. Return the records. Drop late errors of this type.

    When a test removes the cause, one error may be reported and another one on its way.
    """
    records: list[Record] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not in time; read {records}"
        try:
            for part in consumer.poll(timeout_ms=50).values():
                records += part
        except kind as error:
            errors.append(error)
            assert len(errors) <= LATE_ERRORS, errors
    return records


def values(records: list[Record]) -> list[Any]:
    return [record.value for record in records]


class Recorder(ConsumerRebalanceListener):
    """A listener that records its calls and threads. ``hooks`` maps a callback to a function."""

    def __init__(self, **hooks: Callable[[Partitions], object]) -> None:
        self.calls: list[tuple[str, Partitions]] = []
        self.threads: set[threading.Thread] = set()
        self.hooks = hooks

    def _called(self, name: str, partitions: Partitions) -> None:
        self.calls.append((name, partitions))
        self.threads.add(threading.current_thread())
        if name in self.hooks:
            self.hooks[name](partitions)

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        self._called("revoked", revoked)

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self._called("assigned", assigned)

    def on_partitions_lost(self, lost: Partitions) -> None:
        self._called("lost", lost)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def count(self, name: str) -> int:
        return self.names.count(name)


def committed(cluster: Cluster, group: str, tp: TopicPartition) -> int | None:
    """Return the offset that the group has committed."""
    at = cluster.committed(group).get(tp)
    return None if at is None else at.offset


def evict(cluster: Cluster, group: str) -> None:
    """Remove all members from a group without their knowledge. None of them rejoins meanwhile."""
    remove_members(cluster, group)
    cluster.wait_until(lambda: not cluster.group(group).members)


def remove_members(cluster: Cluster, group: str) -> None:
    """Remove all members from a group without their knowledge. They may rejoin soon."""
    members = [
        LeaveGroupRequest.MemberIdentity(member_id=member.member_id)
        for member in cluster.group(group).members
    ]
    send_request(cluster.bootstrap_servers, LeaveGroupRequest(group_id=group, members=members), 4)


def send_request(address: str, message: Request[Any], version: int) -> Response:
    """Send one request over a new connection and return the response."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as link:
        link.sendall(b"".join(encode_request(message, version, 1, "test")))
        with link.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            _, response = decode_response(message.response, version, stream.read(size))
    return response


@contextmanager
def at_most_cpu(share: float, *others: threading.Thread | None) -> Iterator[None]:
    """Check that this thread and the others use at most this share of a CPU in the block.

    The cluster's thread does not count, nor does garbage of other tests, whose collection takes a
    tenth of a second. Python's development mode costs asyncio about as much again.
    """

    def used() -> float:
        clocks = [time.pthread_getcpuclockid(each.ident) for each in others if each and each.ident]
        return time.thread_time() + sum(map(time.clock_gettime, clocks))

    gc.disable()
    try:
        cpu, wall = used(), time.monotonic()
        yield
        cost = (used() - cpu) / (time.monotonic() - wall)
    finally:
        gc.enable()
    allowed = 2 * share if sys.flags.dev_mode else share
    assert cost <= allowed, f"{100 * cost:.1f} % of a processor"


def thread_of(consumer: Any) -> threading.Thread | None:
    """Return the consumer thread. The async API has none."""
    thread = getattr(consumer._driver, "thread", None)
    found: threading.Thread | None = thread and thread._thread
    return found


def poll_quietly(consumer: KafkaConsumer, seconds: float = 1.0) -> list[KafkaError]:
    """Poll in a loop that catches errors, and check that it takes next to no CPU."""
    errors: list[KafkaError] = []
    deadline = time.monotonic() + seconds
    with at_most_cpu(QUIET, thread_of(consumer)):
        while time.monotonic() < deadline:
            try:
                assert consumer.poll(timeout_ms=100) == {}
            except KafkaError as error:
                errors.append(error)
    return errors


async def apoll_quietly(consumer: AnyConsumer, seconds: float = 1.0) -> list[KafkaError]:
    """Poll as poll_quietly() does, on the async API."""
    errors: list[KafkaError] = []
    deadline = anyio.current_time() + seconds
    with at_most_cpu(QUIET, thread_of(consumer)):
        while anyio.current_time() < deadline:
            try:
                assert await consumer.poll(timeout_ms=100) == {}
            except KafkaError as error:
                errors.append(error)
    return errors


def kohort_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("kohort-heartbeat")]


class AsyncRecorder(ConsumerRebalanceListener):
    """Remembers its calls and their tasks; ``hooks`` are awaited by the names of the callbacks."""

    def __init__(self, **hooks: Callable[[Partitions], Awaitable[object]]) -> None:
        self.calls: list[tuple[str, Partitions]] = []
        self.tasks: set[int] = set()
        self.hooks = hooks

    async def _called(self, name: str, partitions: Partitions) -> None:
        self.calls.append((name, partitions))
        self.tasks.add(anyio.get_current_task().id)
        await anyio.lowlevel.checkpoint()
        if name in self.hooks:
            await self.hooks[name](partitions)

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        await self._called("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        await self._called("assigned", assigned)

    async def on_partitions_lost(self, lost: Partitions) -> None:
        await self._called("lost", lost)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]
