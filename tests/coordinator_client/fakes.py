"""A cluster with one scripted coordinator, and fake callbacks of a group."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import anyio

from kohort.config import GroupConfig
from kohort.coordinator_client import (
    ClusterTopics,
    CoordinatorClient,
    PartitionAssignor,
    Subscription,
    resolve_assignors,
)
from kohort.coordinator_client.assignors import Assignments
from kohort.errors import UnsupportedVersionError
from kohort.protocol import ZERO_UUID, Message, Request, Response
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.transport import BrokerAddress, ClusterMetadata, PartitionMetadata, TopicMetadata
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)
T = TypeVar("T")
M = TypeVar("M", bound=Message)
Partitions = frozenset[TopicPartition]
Handler = Callable[[Any], Any]


def topic(count: int, topic_id: bytes = ZERO_UUID, replicas: Sequence[int] = (1,)) -> TopicMetadata:
    partitions = {number: PartitionMetadata(1, 0, tuple(replicas)) for number in range(count)}
    return TopicMetadata("", topic_id, partitions=partitions)


@dataclass
class Sent:
    """One request with its broker, purpose and version."""

    message: Request[Any]
    node: int | None
    purpose: str
    version: int


class FakeCluster:
    """A cluster with one response handler per request. The default is a group with one member."""

    def __init__(self, **topics: int) -> None:
        self.brokers = {1: BrokerAddress(1, "h", 1, "r1"), 2: BrokerAddress(2, "h", 2, "r2")}
        self.topics = {name: topic(count) for name, count in topics.items()}
        self.hidden: dict[str, TopicMetadata] = {}
        """Topics that only fetch_topics() adds."""
        self.sent: list[Sent] = []
        self.prepared: list[tuple[int, str]] = []
        self.refreshes = 0
        self.last_version: dict[type[Message], int] = {}
        self.handlers: dict[type[Message], Handler] = {
            FindCoordinatorRequest: self._find,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: lambda _: HeartbeatResponse(),
            LeaveGroupRequest: lambda _: LeaveGroupResponse(),
            OffsetCommitRequest: commit_all,
        }
        self.generation = 0
        self.coordinator = 1

    def on(self, kind: type[Message], handler: Handler) -> None:
        """Respond with what the handler returns, awaits or raises."""
        self.handlers[kind] = handler

    def once(self, kind: type[Message], *answers: Response | Exception) -> None:
        """Respond with these first, then with the previous handler."""
        before, left = self.handlers[kind], list(answers)

        def handler(message: Any) -> Any:
            if not left:
                return before(message)
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.handlers[kind] = handler

    def requests(self, kind: type[M]) -> list[M]:
        return [sent.message for sent in self.sent if isinstance(sent.message, kind)]

    # --- as ClusterClient -----------------------------------------------------------------------

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
        kind = type(message)
        served = self.last_version.get(kind, kind.versions.last)
        version = min(served, kind.versions.last if max_version is None else max_version)
        if version < (min_version or 0):
            raise UnsupportedVersionError(f"{kind.__name__} {min_version} is not served")
        self.sent.append(Sent(message, node, purpose, version))
        await anyio.lowlevel.checkpoint()
        answer = self.handlers[kind](message)
        if isinstance(answer, Awaitable):
            answer = await answer
        return cast(R, answer)

    def prepare(self, node: int, purpose: str, /) -> None:
        self.prepared.append((node, purpose))

    principal: str | None = None

    @property
    def metadata(self) -> ClusterMetadata:
        names = {each.topic_id: name for name, each in self.topics.items() if any(each.topic_id)}
        return ClusterMetadata(brokers=self.brokers, topics=dict(self.topics), topic_names=names)

    async def fetch_topics(self, names: Collection[str] | None, /) -> ClusterMetadata:
        self.topics.update(self.hidden)
        return self.metadata

    def request_refresh(self) -> None:
        self.refreshes += 1

    # --- a group of one -------------------------------------------------------------------------

    def _find(self, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if message.coordinator_keys:
            found = FindCoordinatorResponse.Coordinator(
                key=message.coordinator_keys[0], node_id=self.coordinator
            )
            return FindCoordinatorResponse(coordinators=[found])
        return FindCoordinatorResponse(node_id=self.coordinator)

    def _join(self, message: JoinGroupRequest) -> JoinGroupResponse:
        if not message.member_id:
            return JoinGroupResponse(error_code=79, member_id="member-1")
        self.generation += 1
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=message.protocols[0].name,
            leader=message.member_id,
            member_id=message.member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=message.member_id, metadata=message.protocols[0].metadata
                )
            ],
        )

    def _sync(self, message: SyncGroupRequest) -> SyncGroupResponse:
        mine = {each.member_id: each.assignment for each in message.assignments}
        return SyncGroupResponse(assignment=mine.get(message.member_id, b""))


def commit_all(
    message: OffsetCommitRequest, code: int = 0, codes: Mapping[int, int] | None = None
) -> OffsetCommitResponse:
    """Accept every offset, or reject all, or reject some by partition number."""
    Partition = OffsetCommitResponse.OffsetCommitResponsePartition
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Partition(
                        partition_index=each.partition_index,
                        error_code=(codes or {}).get(each.partition_index, code),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


@dataclass
class FakeHost:
    """Callbacks that always run inside poll() and record their calls."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    withheld: list[Partitions] = field(default_factory=list)
    looked_ahead: list[Partitions] = field(default_factory=list)
    delivered: list[Partitions] = field(default_factory=list)
    """For each assignment, the partitions whose records may be returned from then on."""
    gate: anyio.Event | None = None
    """Event that lets the caller enter poll(). None if the caller is always in poll()."""
    hold: anyio.Event | None = None
    """Event that ends the callbacks in progress. None if callbacks return without a wait."""
    polled_at: float | None = None
    refresh: Callable[[], Awaitable[object]] | None = None
    """Function that looks for new topics of a pattern."""

    async def _call(self, name: str, about: Any) -> None:
        self.calls.append((name, about))
        if self.hold is not None:
            await self.hold.wait()
        await anyio.lowlevel.checkpoint()

    async def on_revoked(self, partitions: Partitions) -> None:
        await self._call("revoked", partitions)

    def stop_delivery(self, partitions: Partitions) -> None:
        self.withheld.append(partitions)

    def resume_delivery(self, partitions: Partitions) -> None:
        self.withheld.remove(partitions)

    async def on_lost(self, partitions: Partitions) -> None:
        await self._call("lost", partitions)

    async def on_assigned(
        self, added: Partitions, assignment: Partitions, withheld: Partitions
    ) -> None:
        self.delivered.append(assignment - withheld)
        await self._call("assigned", added)

    async def look_ahead(self, partitions: Partitions) -> None:
        self.looked_ahead.append(partitions)

    async def assign(
        self,
        assignor: PartitionAssignor,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
    ) -> Assignments:
        return assignor.assign(cluster, subscriptions)

    async def call_assignor(self, function: Callable[[], T]) -> T:
        self.calls.append(("assignor", None))
        return function()

    async def refresh_topics(self) -> None:
        if self.refresh is not None:
            await self.refresh()

    async def wait_for_poll(self) -> None:
        if self.gate is not None:
            await self.gate.wait()

    def last_poll(self) -> float:
        return anyio.current_time() if self.polled_at is None else self.polled_at

    def membership_confirmed(self) -> None:
        self.calls.append(("confirmed", None))

    def group_failed(self, error: Exception) -> None:
        self.failures.append(error)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


QUICK_ANY: dict[str, Any] = {
    "group_id": "g",
    "max_poll_interval_ms": 60_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 20,
}
QUICK: dict[str, Any] = {**QUICK_ANY, "heartbeat_interval_ms": 20, "session_timeout_ms": 2000}


@dataclass
class Consumer:
    """A client with its cluster and its callbacks."""

    cluster: FakeCluster
    host: FakeHost
    client: CoordinatorClient

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until the predicate holds. The predicate runs every millisecond."""
        with anyio.fail_after(60):
            while True:
                if predicate():
                    return
                await anyio.sleep(0.001)

    async def until_stable(self, generation: int) -> None:
        """Wait until the rebalance of this generation is complete."""
        await self.until(lambda: self.client.snapshot().generation_id >= generation)
        await self.until_state("stable")

    async def until_state(self, state: str) -> None:
        await self.until(lambda: self.client.snapshot().state == state)


@asynccontextmanager
async def running(
    cluster: FakeCluster | None = None,
    host: FakeHost | None = None,
    assignors: Any = ("range", "roundrobin"),
    client_options: Mapping[str, Any] | None = None,
    quick: bool = True,
    **options: Any,
) -> AsyncIterator[Consumer]:
    """Run a client until the end of the block.

    Without ``quick``, it has no option that only the classic protocol has.
    """
    cluster, host = cluster or FakeCluster(t=4), host or FakeHost()
    client = CoordinatorClient(
        cluster,
        GroupConfig(**{**(QUICK if quick else QUICK_ANY), **options}),
        resolve_assignors(assignors),
        host,
        rng=random.Random(1),
        **(client_options or {}),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.run)
        yield Consumer(cluster, host, client)
        tasks.cancel_scope.cancel()
