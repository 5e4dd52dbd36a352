"""One interface for consumers: kohort's two and those of three other client libraries.

All calls on a peer come from one thread. The default assignors are each client's own. Heartbeats
are quick, because a rebalance lasts as long as the other members' next heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import aiokafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from anyio.from_thread import BlockingPortal, start_blocking_portal
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

import kohort
from tests.interop.ownership import (
    AioKafkaListener,
    Change,
    KafkaPythonListener,
    KohortListener,
    Ownership,
)

HEARTBEAT_MS = 200
SESSION_MS = 10_000
POLL_MS = 100
MAX_RECORDS = 500
REMOTE = "group.remote.assignor"
AIOKAFKA_STOP_S = 15.0


class Read(NamedTuple):
    """Record that a member has read."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True)
class Settings:
    """Settings of a member. ``strategy`` is an assignor's name, or None for the client's own.

    ``protocol`` is "classic", "consumer", or None for the client's own. By the consumer protocol
    the assignor, the session and the heartbeat interval are the broker's.
    """

    bootstrap_servers: str
    topic: str
    group: str
    client_id: str
    strategy: str | None = None
    instance: str | None = None
    session_ms: int = SESSION_MS
    more: dict[str, Any] = field(default_factory=dict)
    protocol: str | None = None

    @property
    def is_classic(self) -> bool:
        """True if the member chooses its assignor, its session and its heartbeat interval."""
        return self.protocol != "consumer"

    def keywords(self, strategies: dict[str, Any]) -> dict[str, Any]:
        """Return them as the keywords that kohort, aiokafka and kafka-python share."""
        keywords: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "client_id": self.client_id,
            "auto_offset_reset": "earliest",
        }
        if self.is_classic:
            keywords["heartbeat_interval_ms"] = HEARTBEAT_MS
            keywords["session_timeout_ms"] = self.session_ms
        if self.is_classic and self.strategy is not None:
            keywords["partition_assignment_strategy"] = [strategies[self.strategy]]
        if self.instance is not None:
            keywords["group_instance_id"] = self.instance
        return keywords | self.more


class Peer(Protocol):
    """Member of a group that commits automatically what it has returned."""

    @property
    def changes(self) -> list[Change]:
        """Partitions that it got and gave up, as far as it reports them."""

    def poll_once(self) -> list[Read]:
        """Poll for a moment and return the records."""

    def assignment(self) -> frozenset[int]:
        """Return the assigned partitions of the only topic."""

    def commit(self) -> None:
        """Commit all that was returned, and wait for it."""

    def close(self) -> None:
        """Commit, leave the group and close."""


class Kohort:
    """Peer of ``kohort.KafkaConsumer``."""

    STRATEGIES = {name: name for name in ("range", "roundrobin", "sticky", "cooperative-sticky")}

    def __init__(self, settings: Settings) -> None:
        self._ownership = Ownership()
        self.consumer = kohort.KafkaConsumer(**self.keywords(settings))
        self.consumer.subscribe([settings.topic], listener=KohortListener(self._ownership))

    @classmethod
    def keywords(cls, settings: Settings) -> dict[str, Any]:
        """Return the settings as keywords of kohort."""
        keywords = settings.keywords(cls.STRATEGIES)
        if settings.protocol is not None:
            keywords["group_protocol"] = settings.protocol
        if not settings.is_classic and settings.strategy is not None:
            keywords["group_remote_assignor"] = settings.strategy
        return keywords

    @property
    def changes(self) -> list[Change]:
        return self._ownership.changes

    def poll_once(self) -> list[Read]:
        return _flat(self.consumer.poll(timeout_ms=POLL_MS))

    def assignment(self) -> frozenset[int]:
        return _partitions(self.consumer.assignment())

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class _OnALoop:
    """Consumer that runs in an event loop, in a separate thread.

    ``open`` returns the context manager that starts and closes the consumer.
    """

    POLL = "poll"

    changes: list[Change]

    def __init__(
        self,
        backend: str,
        make: Callable[[], Any],
        open: Callable[[Any], AbstractAsyncContextManager[Any]] = lambda consumer: consumer,
    ) -> None:
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal(backend))
            self.consumer = self._portal.call(_inside, make)
            stack.enter_context(self._portal.wrap_async_context_manager(open(self.consumer)))
            self._stack = stack.pop_all()

    def poll_once(self) -> list[Read]:
        poll = getattr(self.consumer, self.POLL)
        wait = partial(poll, timeout_ms=POLL_MS, max_records=MAX_RECORDS)
        return _flat(self._portal.call(wait))

    def assignment(self) -> frozenset[int]:
        return _partitions(self._portal.call(self.consumer.assignment))

    def commit(self) -> None:
        self._portal.call(self.consumer.commit)

    def close(self) -> None:
        self._stack.close()


class KohortAsync(_OnALoop):
    """Peer of ``kohort.AsyncKafkaConsumer``, on asyncio or trio."""

    def __init__(self, settings: Settings, backend: str) -> None:
        keywords = Kohort.keywords(settings)
        self.changes = []
        super().__init__(backend, partial(kohort.AsyncKafkaConsumer, settings.topic, **keywords))


class AioKafka(_OnALoop):
    """Peer of aiokafka, which uses round-robin by default."""

    POLL = "getmany"
    STRATEGIES = {"range": AioRange, "roundrobin": AioRoundRobin}

    def __init__(self, settings: Settings) -> None:
        self._ownership = ownership = Ownership()
        self.changes = ownership.changes

        def make() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(**settings.keywords(self.STRATEGIES))
            consumer.subscribe([settings.topic], listener=AioKafkaListener(ownership))
            return consumer

        super().__init__("asyncio", make, _aiokafka)

    def close(self) -> None:
        self._ownership.lose(self._ownership.owned())  # stop() calls no listener
        super().close()


class KafkaPython:
    """Peer of kafka-python.

    If a poll() of 3.0.12 times out just as its SyncGroup gets a response, it never takes the
    assignment. The time-out is therefore long, and poll() returns early as long as records arrive.
    """

    POLL_MS = 1500
    STRATEGIES = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def __init__(self, settings: Settings) -> None:
        ownership = Ownership()
        self.changes = ownership.changes
        self.consumer = kafka.KafkaConsumer(**settings.keywords(self.STRATEGIES))
        self.consumer.subscribe([settings.topic], listener=KafkaPythonListener(ownership))

    def poll_once(self) -> list[Read]:
        return _flat(self.consumer.poll(timeout_ms=self.POLL_MS))

    def assignment(self) -> frozenset[int]:
        return _partitions(self.consumer.assignment())

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class Confluent:
    """Peer of confluent-kafka."""

    def __init__(self, settings: Settings) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group,
            "client.id": settings.client_id,
            "auto.offset.reset": "earliest",
        }
        if settings.protocol is not None:
            options["group.protocol"] = settings.protocol
        if settings.is_classic:
            options["heartbeat.interval.ms"] = HEARTBEAT_MS
            options["session.timeout.ms"] = settings.session_ms
        if settings.strategy is not None:
            assignor = "partition.assignment.strategy" if settings.is_classic else REMOTE
            options[assignor] = settings.strategy
        if settings.instance is not None:
            options["group.instance.id"] = settings.instance
        self.consumer = Consumer(options | settings.more)
        ownership = Ownership()
        self.changes = ownership.changes
        # With a callback the partitions are revoked inside poll(), after the records it returned.
        self.consumer.subscribe(
            [settings.topic],
            on_assign=lambda _, given: ownership.gain(tp.partition for tp in given),
            on_revoke=lambda _, taken: ownership.lose(tp.partition for tp in taken),
        )

    def poll_once(self) -> list[Read]:
        reads: list[Read] = []
        message = self.consumer.poll(POLL_MS / 1000)
        while message is not None:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and isinstance(value, bytes)
            reads.append(Read(partition, offset, value))
            message = self.consumer.poll(0) if len(reads) < MAX_RECORDS else None
        return reads

    def assignment(self) -> frozenset[int]:
        return frozenset(tp.partition for tp in self.consumer.assignment())

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # all of it is already committed
                raise

    def close(self) -> None:
        self.consumer.close()


@asynccontextmanager
async def _aiokafka(consumer: Any) -> AsyncIterator[None]:
    """Start and stop the consumer. Close its fetcher and client even if stop() fails.

    After stop() was called, aiokafka 0.14.0 does not look for a coordinator, and retries its last
    commit until there is one. If the coordinator has just died, stop() never returns, on Apache
    Kafka too. The member then leaves its group when its session ends. stop() can also raise the
    cancellation of its heartbeat or its fetch.
    """
    await consumer.start()
    try:
        yield
    finally:
        try:
            await asyncio.wait_for(consumer.stop(), AIOKAFKA_STOP_S)
        except (TimeoutError, asyncio.CancelledError):
            with suppress(asyncio.CancelledError):
                await consumer._fetcher.close()
            await consumer._client.close()


async def _inside(make: Callable[[], Any]) -> Any:
    """Return the result of ``make``, called while the loop runs, because aiokafka requires that."""
    return make()


def _flat(records: dict[Any, list[Any]]) -> list[Read]:
    return [Read(r.partition, r.offset, r.value) for some in records.values() for r in some]


def _partitions(assigned: set[Any] | frozenset[Any]) -> frozenset[int]:
    return frozenset(tp.partition for tp in assigned)


Make = Callable[[Settings], Peer]

APIS: dict[str, Make] = {
    "sync": Kohort,
    "asyncio": partial(KohortAsync, backend="asyncio"),
    "trio": partial(KohortAsync, backend="trio"),
}
OTHERS: dict[str, Make] = {
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}
