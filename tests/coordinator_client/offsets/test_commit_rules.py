"""Commits and reads of offsets by a member with an epoch (KIP-848)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from kohort.config import GroupConfig
from kohort.coordinator_client import MemberState
from kohort.coordinator_client._cluster_view import LatestIds
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client.machine._events import EpochRejected, Event
from kohort.coordinator_client.offsets._offsets import OffsetManager
from kohort.errors import CommitFailedError, ErrorCode, KafkaTimeoutError
from kohort.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kohort.transport import Backoff
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.coordinator_client.fakes import FakeCluster, commit_all
from tests.support.virtual import run_virtual_on

pytestmark = pytest.mark.anyio

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT = OffsetAndMetadata(5, "note", 3)


@dataclass
class Member:
    """A membership of a consumer group, as far as offsets need it."""

    generation: int = 7
    member_id: str = "m"
    owned: frozenset[TopicPartition] = frozenset({T0, T1})
    state: MemberState = MemberState.STABLE
    losses: int = 0
    releases: Counter[TopicPartition] = field(default_factory=Counter)
    uses_epochs: bool = True
    is_fenced: bool = False
    is_finishing_rebalance: bool = False
    events: list[Event] = field(default_factory=list)
    next_epochs: list[int] = field(default_factory=list)
    """The epochs that heartbeats after a rejected one bring."""

    def send(self, event: Event) -> None:
        self.events.append(event)
        if self.next_epochs:
            self.generation = self.next_epochs.pop(0)


def _offsets(member: Member, cluster: FakeCluster, timeout_ms: int = 40_000) -> OffsetManager:
    config = GroupConfig(group_id="g", request_timeout_ms=timeout_ms)
    rng = random.Random(1)
    coordinator = CoordinatorConnection(
        cluster, "g", Backoff(0.001, 0.002), rng, request_timeout=timeout_ms / 1000
    )
    interface: Any = member
    return OffsetManager(
        cluster,
        coordinator,
        config,
        interface,
        member.send,
        lambda attempt: 0.001,
        require_stable=True,
        history=LatestIds(cluster),
    )


def _accept_from(cluster: FakeCluster, epoch: int) -> None:
    """Reject commits of earlier epochs as an Apache Kafka broker does."""

    def answer(message: OffsetCommitRequest) -> OffsetCommitResponse:
        is_stale = message.generation_id_or_member_epoch < epoch
        return commit_all(message, ErrorCode.STALE_MEMBER_EPOCH if is_stale else 0)

    cluster.on(OffsetCommitRequest, answer)


def _epochs(cluster: FakeCluster) -> list[int]:
    requests = cluster.requests(OffsetCommitRequest)
    return [request.generation_id_or_member_epoch for request in requests]


def _numbers(message: OffsetCommitRequest) -> list[int]:
    return [each.partition_index for topic in message.topics for each in topic.partitions]


# --- commit ---------------------------------------------------------------------------------------


async def test_commit_names_the_member_epoch() -> None:
    cluster, member = FakeCluster(t=2), Member()
    await _offsets(member, cluster).commit({T0: AT}, 5)
    (request,) = cluster.requests(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (7, "m")
    assert cluster.sent[-1].version == 9
    assert not member.events


async def test_commit_repeats_under_the_new_epoch() -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[8])
    _accept_from(cluster, 8)
    await _offsets(member, cluster).commit({T0: AT, T1: AT}, 5)
    assert _epochs(cluster) == [7, 8]
    assert member.events == [EpochRejected(7)]


async def test_commit_sends_no_event_when_the_epoch_is_newer_already() -> None:
    cluster, member = FakeCluster(t=2), Member()

    def answer(message: OffsetCommitRequest) -> OffsetCommitResponse:
        if message.generation_id_or_member_epoch == 7:
            member.generation = 8  # the answer to a heartbeat came first
            return commit_all(message, ErrorCode.STALE_MEMBER_EPOCH)
        return commit_all(message)

    cluster.on(OffsetCommitRequest, answer)
    await _offsets(member, cluster).commit({T0: AT}, 5)
    assert _epochs(cluster) == [7, 8]
    assert not member.events


async def test_commit_repeats_only_partitions_still_owned() -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[8])
    _accept_from(cluster, 8)
    send = member.send

    def revoking(event: Event) -> None:
        send(event)
        member.owned = frozenset({T1})

    member.send = revoking  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError, match="gave the partitions up") as caught:
        await _offsets(member, cluster).commit({T0: AT, T1: AT}, 5)
    assert caught.value.offsets == {T0: AT}
    assert [_numbers(each) for each in cluster.requests(OffsetCommitRequest)] == [[0, 1], [1]]


async def test_commit_checks_ownership_before_it_sends() -> None:
    # The broker accepts commits for any partition from a member with the current epoch.
    cluster, member = FakeCluster(t=2), Member(owned=frozenset({T0}))
    with pytest.raises(CommitFailedError, match=r"t 1 is not assigned .* in epoch 7") as caught:
        await _offsets(member, cluster).commit({T0: AT, T1: AT}, 5)
    assert caught.value.offsets == {T1: AT}
    assert not cluster.requests(OffsetCommitRequest)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_commit_times_out_when_no_new_epoch_comes(backend: str) -> None:
    cluster, member = FakeCluster(t=2), Member()
    _accept_from(cluster, 8)

    async def commit() -> None:
        with pytest.raises(KafkaTimeoutError, match="STALE_MEMBER_EPOCH"):
            await _offsets(member, cluster).commit({T0: AT}, 0.05)

    run_virtual_on(backend, commit)
    assert len(member.events) > 1


async def test_commit_without_timeout_ends_when_no_epoch_comes() -> None:
    cluster, member = FakeCluster(t=2), Member()
    _accept_from(cluster, 8)
    with pytest.raises(CommitFailedError, match="rejected the member epoch for") as caught:
        await _offsets(member, cluster, timeout_ms=50).commit({T0: AT}, None)
    assert caught.value.offsets == {T0: AT}


async def test_commit_fails_when_the_membership_is_lost_meanwhile() -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[9])
    _accept_from(cluster, 9)
    send = member.send

    def fenced(event: Event) -> None:
        send(event)
        member.losses += 1  # removed, and joined again

    member.send = fenced  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError, match="lost its membership"):
        await _offsets(member, cluster).commit({T0: AT}, 5)
    assert _epochs(cluster) == [7]


async def test_commit_of_a_member_is_not_retried_outside_the_group() -> None:
    cluster, member = FakeCluster(t=2), Member()
    _accept_from(cluster, 8)

    def unsubscribed(event: Event) -> None:
        member.losses += 1
        member.generation, member.state = -1, MemberState.UNSUBSCRIBED
        cluster.on(OffsetCommitRequest, commit_all)

    member.send = unsubscribed  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError, match="lost its membership"):
        await _offsets(member, cluster).commit({T0: AT}, 5)
    assert _epochs(cluster) == [7]


async def test_commit_fails_for_partitions_that_came_back_meanwhile() -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[9])
    _accept_from(cluster, 9)
    send = member.send

    def moved(event: Event) -> None:
        send(event)
        member.releases[T0] += 1  # revoked, owned by another member, and assigned again

    member.send = moved  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError, match="gave the partitions up") as caught:
        await _offsets(member, cluster).commit({T0: AT, T1: AT}, 5)
    assert caught.value.offsets == {T0: AT}
    assert [_numbers(request) for request in cluster.requests(OffsetCommitRequest)] == [[0, 1], [1]]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND])
async def test_commit_of_a_removed_member_fails(code: int) -> None:
    cluster, member = FakeCluster(t=2), Member()
    cluster.on(OffsetCommitRequest, lambda message: commit_all(message, code))
    with pytest.raises(CommitFailedError, match="another member may own"):
        await _offsets(member, cluster).commit({T0: AT}, 5)
    assert member.events == [EpochRejected(7)]


async def test_commit_before_the_first_epoch_fails() -> None:
    cluster, member = FakeCluster(t=2), Member(generation=0, state=MemberState.JOINING)
    with pytest.raises(CommitFailedError, match="not a member"):
        await _offsets(member, cluster).commit({T0: AT}, 5)
    assert not cluster.requests(OffsetCommitRequest)


# --- read -----------------------------------------------------------------------------------------


def _read(cluster: FakeCluster, codes: Iterable[int]) -> None:
    """Return these codes for the group first, then offset 42."""
    left = list(codes)

    def answer(message: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = message.groups
        Group = OffsetFetchResponse.OffsetFetchResponseGroup
        if left:
            return OffsetFetchResponse(
                groups=[Group(group_id=group.group_id, error_code=left.pop(0))]
            )
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=number, committed_offset=42
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
        return OffsetFetchResponse(groups=[Group(group_id=group.group_id, topics=topics)])

    cluster.on(OffsetFetchRequest, answer)


def _readers(cluster: FakeCluster) -> list[tuple[str | None, int]]:
    return [
        (request.groups[0].member_id, request.groups[0].member_epoch)
        for request in cluster.requests(OffsetFetchRequest)
    ]


async def test_read_names_the_member_and_its_epoch() -> None:
    cluster, member = FakeCluster(t=2), Member()
    _read(cluster, [])
    found = await _offsets(member, cluster).committed([T0], 5)
    assert found == {T0: OffsetAndMetadata(42)}
    assert _readers(cluster) == [("m", 7)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_MEMBER_EPOCH,
    ],
)
async def test_rejected_read_is_repeated_and_is_never_no_offset(code: int) -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[8])
    _read(cluster, [code])
    found = await _offsets(member, cluster).committed([T0], 5)
    assert found == {T0: OffsetAndMetadata(42)}
    assert _readers(cluster) == [("m", 7), ("m", 8)]
    assert member.events == [EpochRejected(7)]


async def test_rejected_read_times_out_and_raises() -> None:
    cluster, member = FakeCluster(t=2), Member()
    _read(cluster, [ErrorCode.STALE_MEMBER_EPOCH] * 1000)
    with pytest.raises(KafkaTimeoutError, match="STALE_MEMBER_EPOCH"):
        await _offsets(member, cluster).committed([T0], 0.05)


async def test_read_of_a_lost_member_is_from_outside() -> None:
    cluster, member = FakeCluster(t=2), Member()
    _read(cluster, [ErrorCode.UNKNOWN_MEMBER_ID])
    send = member.send

    def fenced(event: Event) -> None:
        send(event)
        member.generation, member.state = -1, MemberState.JOIN_PENDING

    member.send = fenced  # type: ignore[method-assign]
    await _offsets(member, cluster).committed([T0], 5)
    assert _readers(cluster) == [("m", 7), (None, -1)]


async def test_read_without_epochs_names_no_member() -> None:
    cluster, member = FakeCluster(t=2), Member(uses_epochs=False)
    _read(cluster, [])
    await _offsets(member, cluster).committed([T0], 5)
    assert _readers(cluster) == [(None, -1)]


async def test_commits_keep_their_order_over_a_rejected_epoch() -> None:
    cluster, member = FakeCluster(t=2), Member(next_epochs=[8])
    _accept_from(cluster, 8)
    offsets = _offsets(member, cluster)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(offsets.commit, {T0: OffsetAndMetadata(1)}, 5)
        tasks.start_soon(offsets.commit, {T0: OffsetAndMetadata(2)}, 5)
    committed = [
        request.topics[0].partitions[0].committed_offset
        for request in cluster.requests(OffsetCommitRequest)
    ]
    assert sorted(committed[-2:]) == [1, 2]
    assert committed[0] == committed[1]
