"""A cluster without a network: partition logs, leaders, long polls, and scripted faults."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import anyio

from kohort.config import FetchConfig
from kohort.errors import ErrorCode, KafkaConnectionError
from kohort.fetcher import Fetcher, FetcherEvents, FetcherOptions
from kohort.protocol import Request, Response, encode
from kohort.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kohort.subscription import SubscriptionState
from kohort.transport import BrokerAddress, Leader, Leased, Line, TopicMetadata
from kohort.transport.connection._frames import Frame
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)
Partition = FetchResponse.PartitionData
Script = Callable[[int, Any], Any]
"""(node, request) -> response or exception. None stands for the default response."""


@dataclass
class Log:
    """One partition: its batches, each with the offset after it."""

    start: int = 0
    end: int = 0
    stable: int | None = None
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    epoch_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Responses to OffsetForLeaderEpoch by epoch. The default is the end of the log."""
    codes: deque[int] = field(default_factory=deque)
    """Error codes for the next fetches or look-ups."""

    def append(self, behind: int, *data: bytes) -> None:
        for one in data:
            self.batches.append((behind, one))
        self.end = behind

    def read(self, offset: int, max_bytes: int, *, whole: bool = True) -> bytes:
        """Return the batches from an offset on.

        ``whole`` returns the first batch at any size, as KIP-74 says.
        """
        data = b""
        for behind, one in self.batches:
            if behind <= offset:
                continue
            if len(data) + len(one) > max_bytes and (data or not whole):
                break
            data += one
        return data


class FakeLease(Leased[R]):
    """A response that counts as leased until it is released."""

    def __init__(self, cluster: FakeCluster, response: R) -> None:
        super().__init__(response, Frame(b""))
        self._cluster = cluster
        cluster.leases += 1

    @property
    def is_pooled(self) -> bool:
        return True

    def release(self) -> None:
        super().release()
        self._cluster.leases -= 1


class FakeMetadata(NamedTuple):
    """A snapshot of the leaders."""

    leaders: dict[TopicPartition, Leader]
    topics: dict[str, TopicMetadata]

    def leader(self, topic_partition: TopicPartition, /) -> Leader | None:
        return self.leaders.get(topic_partition)


class FakeCluster:
    """The methods of ClusterClient that the fetcher calls."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._metadata = FakeMetadata({}, {})
        self.fetches: list[tuple[int, str, FetchRequest]] = []
        self.lookups: list[tuple[int, ListOffsetsRequest]] = []
        self.validations: list[tuple[int, OffsetForLeaderEpochRequest]] = []
        self.refreshes = 0
        self.leases = 0
        self.scripts: deque[Script] = deque()
        self.known_topics_asked: list[frozenset[str]] = []
        self.on_refresh: Callable[[], None] = lambda: None
        self._busy: set[tuple[int, str]] = set()
        self.silent: set[int] = set()
        """Brokers that never respond to a look-up."""
        self._changed = anyio.Event()
        self.delay = 0.0
        """Seconds that each fetch takes."""
        self.lines: dict[int, Line] = {}
        self.closed: list[tuple[int, str]] = []
        """Connections that the fetcher has closed."""
        self.failing: set[tuple[int, str]] = set()
        """Connections that break at each fetch."""
        self.in_flight: dict[tuple[int, str], dict[TopicPartition, int]] = {}
        """Offsets of the partitions that each connection fetches now."""
        self.overlaps: list[tuple[TopicPartition, int]] = []
        """Partitions and offsets that were in flight over two connections to a broker."""

    def add(self, tp: TopicPartition, node: int = 1, epoch: int = 5) -> Log:
        self.leaders[tp] = Leader(node, epoch)
        return self.logs.setdefault(tp, Log())

    def produce(self, tp: TopicPartition, behind: int, *data: bytes) -> None:
        """Append batches and wake the fetches that wait for them."""
        self.logs[tp].append(behind, *data)
        event, self._changed = self._changed, anyio.Event()
        event.set()

    # --- ClusterClient ----------------------------------------------------------------------------

    principal: str | None = None

    @property
    def metadata(self) -> FakeMetadata:
        """Snapshot of the metadata, replaced after each change."""
        if self._metadata != (self.leaders, self.topics):
            self._metadata = FakeMetadata(dict(self.leaders), dict(self.topics))
        return self._metadata

    def line(self, node: int, /) -> Line | None:
        return self.lines.get(node)

    def close_connection(self, node: int, purpose: str, /) -> None:
        assert (node, purpose) not in self._busy
        self.closed.append((node, purpose))

    def prepare(self, node: int, purpose: str, /) -> None:
        """Do nothing, because no request waits for a connection here."""

    def request_refresh(self) -> None:
        self.refreshes += 1
        self.on_refresh()

    async def fetch_topics(
        self, names: Collection[str] | None, /, *, may_create: bool = True
    ) -> FakeMetadata:
        self.known_topics_asked.append(frozenset(names or ()))
        self.on_refresh()
        return self.metadata

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> None:
        self.leaders.update(
            {
                tp: new
                for tp, new in leaders.items()
                if (old := self.leaders.get(tp)) and old.epoch < new.epoch
            }
        )

    async def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> R:
        assert node is not None
        encode(message, min_version or 1)
        if isinstance(message, OffsetForLeaderEpochRequest):
            assert min_version == 3
            self.validations.append((node, message))
            await anyio.lowlevel.checkpoint()
            checked: Any = self._scripted(node, message) or self._validate(node, message)
            return cast(R, checked)
        assert isinstance(message, ListOffsetsRequest)
        self.lookups.append((node, message))
        await anyio.lowlevel.checkpoint()
        if node in self.silent:
            await anyio.sleep_forever()
        response: Any = self._scripted(node, message) or self._list_offsets(node, message)
        return cast(R, response)

    async def request_leased(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
        on_response: Callable[[Leased[R]], None] | None = None,
    ) -> Leased[R]:
        assert isinstance(message, FetchRequest)
        assert node is not None
        assert max_version in (12, 18)
        assert timeout_ms is not None
        assert timeout_ms > message.max_wait_ms
        for version in (4, max_version):
            encode(message, version)
        assert (node, purpose) not in self._busy, "two fetches in flight on one connection"
        self._busy.add((node, purpose))
        self.fetches.append((node, purpose, message))
        offsets = {
            TopicPartition(topic.topic, each.partition): each.fetch_offset
            for topic in message.topics
            for each in topic.partitions
        }
        for (other, _), fetched in self.in_flight.items():
            self.overlaps += (offsets.items() & fetched.items()) if other == node else ()
        self.in_flight[node, purpose] = offsets
        try:
            await anyio.sleep(self.delay)
            if (node, purpose) in self.failing:
                raise KafkaConnectionError("broken")
            response = self._scripted(node, message) or await self._fetch(node, message)
        finally:
            self._busy.discard((node, purpose))
            del self.in_flight[node, purpose]
        leased = FakeLease(self, response)
        if on_response is not None:
            on_response(leased)
        return leased

    def _scripted(self, node: int, message: Any) -> Any:
        result = self.scripts.popleft()(node, message) if self.scripts else None
        if isinstance(result, Exception):
            raise result
        return result

    async def _fetch(self, node: int, message: FetchRequest) -> Any:
        with anyio.move_on_after(message.max_wait_ms / 1000):
            while True:
                changed = self._changed
                response, anything = self.answer(node, message)
                if anything:
                    return response
                await changed.wait()
        return self.answer(node, message)[0]

    def answer(self, node: int, message: FetchRequest) -> tuple[FetchResponse, bool]:
        """Return the default response, and whether it contains anything."""
        anything = False
        left = message.max_bytes
        topics: list[FetchResponse.FetchableTopicResponse] = []
        for topic in message.topics:
            answered = FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[])
            topics.append(answered)
            for asked in topic.partitions:
                tp = TopicPartition(topic.topic, asked.partition)
                data = self._answer_one(node, tp, asked, left, anything)
                left -= len(data.records or b"")
                anything = anything or bool(data.error_code or data.records)
                answered.partitions.append(data)
        return FetchResponse(responses=topics), anything

    def _answer_one(
        self,
        node: int,
        tp: TopicPartition,
        asked: FetchRequest.FetchPartition,
        left: int,
        anything: bool,
    ) -> Partition:
        log, leader = self.logs[tp], self.leaders.get(tp)
        code = 0
        if log.codes:
            code = log.codes.popleft()
        elif leader is None or leader.node != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code:
            return Partition(
                partition_index=tp.partition, error_code=code, high_watermark=-1, records=b""
            )
        return Partition(
            partition_index=tp.partition,
            high_watermark=log.end,
            last_stable_offset=log.end if log.stable is None else log.stable,
            log_start_offset=log.start,
            aborted_transactions=None,
            records=log.read(
                asked.fetch_offset, min(left, asked.partition_max_bytes), whole=not anything
            ),
        )

    def _validate(self, node: int, message: OffsetForLeaderEpochRequest) -> Any:
        """Return the requested epochs as valid, except where a log has the end of an epoch."""
        response = OffsetForLeaderEpochResponse(topics=[])
        for topic in message.topics:
            answered = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answered)
            for asked in topic.partitions:
                tp = TopicPartition(topic.topic, asked.partition)
                log, leader = self.logs[tp], self.leaders.get(tp)
                code, (epoch, end) = (
                    0,
                    log.epoch_ends.get(asked.leader_epoch, (asked.leader_epoch, log.end)),
                )
                if log.codes:
                    code = log.codes.popleft()
                elif leader is None or leader.node != node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif asked.current_leader_epoch != leader.epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                answered.partitions.append(
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        partition=asked.partition,
                        error_code=code,
                        leader_epoch=-1 if code else epoch,
                        end_offset=-1 if code else end,
                    )
                )
        return response

    def _list_offsets(self, node: int, message: ListOffsetsRequest) -> Any:
        topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = []
        for topic in message.topics:
            answered = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=[])
            topics.append(answered)
            for asked in topic.partitions:
                tp = TopicPartition(topic.name, asked.partition_index)
                log, leader = self.logs[tp], self.leaders.get(tp)
                code, offset = 0, -1
                if log.codes:
                    code = log.codes.popleft()
                elif leader is None or leader.node != node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif asked.timestamp == -1:
                    stable = message.isolation_level == 1 and log.stable is not None
                    offset = log.stable if stable and log.stable is not None else log.end
                elif asked.timestamp == -2:
                    offset = log.start
                elif 0 <= asked.timestamp < 1000 + log.end:
                    offset = max(log.start, asked.timestamp - 1000)
                answered.partitions.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=tp.partition,
                        error_code=code,
                        offset=offset,
                        timestamp=asked.timestamp if asked.timestamp >= 0 and offset >= 0 else -1,
                        leader_epoch=5 if offset >= 0 else -1,
                    )
                )
        return ListOffsetsResponse(topics=topics)


QUICK = {"fetch_max_wait_ms": 200, "retry_backoff_ms": 10, "retry_backoff_max_ms": 40}


class Consumer:
    """A running fetcher, and a poll() over it."""

    def __init__(
        self, cluster: FakeCluster, subscription: SubscriptionState, **options: Any
    ) -> None:
        names = ("key_deserializer", "value_deserializer", "wall_clock", "rack")
        given = {name: options.pop(name) for name in names if name in options}
        events: dict[str, Any] = {"on_ready": self._notify}
        if "notify_waiting_caller" in options:
            events["notify_waiting_caller"] = options.pop("notify_waiting_caller")
        self.subscription = subscription
        self.fetcher = Fetcher(
            cluster,
            subscription,
            FetcherOptions(
                FetchConfig(**{**QUICK, **options}),
                rng=random.Random(7),
                metadata_max_age_ms=300_000,
                **{"wall_clock": lambda: 0.0, **given},
            ),
            FetcherEvents(**events),
        )
        self._ready = anyio.Event()

    def _notify(self) -> None:
        self._ready.set()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.subscription.seek(tp, offset)
        self.fetcher.wake()

    async def poll(self, timeout: float = 5.0, limit: int = 500) -> dict[TopicPartition, list[int]]:
        """Return the drained offsets. Wait for records until the timeout."""
        deadline = anyio.current_time() + timeout
        while True:
            self._ready = anyio.Event()
            over = anyio.current_time() >= deadline
            drained = self.fetcher.buffer.drain(limit, repeat_errors=over)
            if drained or over:
                return {tp: [r.offset for r in records] for tp, records in drained.items()}
            with anyio.CancelScope(deadline=deadline):
                await self._ready.wait()

    async def read(self, count: int, timeout: float = 20.0) -> dict[TopicPartition, list[int]]:
        """Poll until this many records arrived."""
        result: dict[TopicPartition, list[int]] = {}
        with anyio.fail_after(timeout):
            while sum(map(len, result.values())) < count:
                for tp, offsets in (await self.poll()).items():
                    result.setdefault(tp, []).extend(offsets)
        return result


@asynccontextmanager
async def consuming(
    cluster: FakeCluster, subscription: SubscriptionState, **options: Any
) -> AsyncIterator[Consumer]:
    """Run a fetcher during the block, and check that it releases all its buffers."""
    async with anyio.create_task_group() as tasks:
        consumer = Consumer(cluster, subscription, **options)
        tasks.start_soon(consumer.fetcher.run)
        yield consumer
        tasks.cancel_scope.cancel()
    consumer.fetcher.close()
    assert cluster.leases == 0
