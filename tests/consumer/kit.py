"""What the tests of the consumer share: reading until something holds, listeners that remember."""

from __future__ import annotations

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

Record = ConsumerRecord[Any, Any]
Partitions = frozenset[TopicPartition]

QUIET = 0.05
"""The share of a processor that polling may take when nothing comes, or errors only."""
PATIENCE = 20.0
"""Seconds until a test gives up waiting; nothing that works takes as long."""


def poll_until(
    consumer: KafkaConsumer, holds: Callable[[], object], patience: float = PATIENCE
) -> list[Record]:
    """Poll until something holds; returns the records that came."""
    records: list[Record] = []
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"not in time; read {records}"
        for part in consumer.poll(timeout_ms=50).values():
            records += part
    return records


def read(consumer: KafkaConsumer, count: int) -> list[Record]:
    """Poll until so many records came."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count:
        assert time.monotonic() < deadline, f"not in time; read {records}"
        for part in consumer.poll(timeout_ms=200).values():
            records += part
    return records


async def aread(consumer: AsyncKafkaConsumer, count: int) -> list[Record]:
    """As read(), on the other face."""
    records: list[Record] = []
    with anyio.fail_after(PATIENCE):
        while len(records) < count:
            for part in (await consumer.getmany(timeout_ms=200)).values():
                records += part
    return records


async def apoll_until(consumer: AsyncKafkaConsumer, holds: Callable[[], object]) -> list[Record]:
    """As poll_until(), on the other face."""
    records: list[Record] = []
    with anyio.fail_after(PATIENCE):
        while not holds():
            for part in (await consumer.getmany(timeout_ms=50)).values():
                records += part
    return records


def poll_error(consumer: KafkaConsumer, kind: type[Exception]) -> Any:
    """Poll until it raises such an error; returns that. Records that come before are dropped."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            consumer.poll(timeout_ms=200)
        except kind as error:
            return error
    raise AssertionError(f"poll() did not raise {kind.__name__}")


def values(records: list[Record]) -> list[Any]:
    return [record.value for record in records]


class Recorder(ConsumerRebalanceListener):
    """Remembers its calls and their threads; ``hooks`` are called by the names of the callbacks."""

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


def evict(cluster: Cluster, group: str) -> None:
    """Take all members out of a group, behind their backs."""
    members = [
        LeaveGroupRequest.MemberIdentity(member_id=member.member_id)
        for member in cluster.group(group).members
    ]
    ask(cluster.bootstrap_servers, LeaveGroupRequest(group_id=group, members=members), 4)
    cluster.wait_until(lambda: not cluster.group(group).members)


def ask(address: str, message: Request[Any], version: int) -> Response:
    """One request over a connection of its own."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as link:
        link.sendall(b"".join(encode_request(message, version, 1, "test")))
        with link.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            _, response = decode_response(message.response, version, stream.read(size))
    return response


@contextmanager
def at_most_cpu(share: float, *others: threading.Thread | None) -> Iterator[None]:
    """This thread and the others use no more than this share of a processor meanwhile.

    The cluster's own thread does not count. Python's development mode costs asyncio about as much
    again.
    """

    def used() -> float:
        clocks = [time.pthread_getcpuclockid(each.ident) for each in others if each and each.ident]
        return time.thread_time() + sum(map(time.clock_gettime, clocks))

    cpu, wall = used(), time.monotonic()
    yield
    cost = (used() - cpu) / (time.monotonic() - wall)
    allowed = 2 * share if sys.flags.dev_mode else share
    assert cost <= allowed, f"{100 * cost:.1f} % of a processor"


def poll_quietly(consumer: KafkaConsumer, seconds: float = 1.0) -> list[KafkaError]:
    """Poll in a loop that catches what is raised; it must not cost anything."""
    errors: list[KafkaError] = []
    deadline = time.monotonic() + seconds
    core = consumer._thread._thread if consumer._thread else None
    with at_most_cpu(QUIET, core):
        while time.monotonic() < deadline:
            try:
                assert consumer.poll(timeout_ms=100) == {}
            except KafkaError as error:
                errors.append(error)
    return errors


async def apoll_quietly(consumer: AsyncKafkaConsumer, seconds: float = 1.0) -> list[KafkaError]:
    """As poll_quietly(), on the other face."""
    errors: list[KafkaError] = []
    deadline = anyio.current_time() + seconds
    with at_most_cpu(QUIET):
        while anyio.current_time() < deadline:
            try:
                assert await consumer.getmany(timeout_ms=100) == {}
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
