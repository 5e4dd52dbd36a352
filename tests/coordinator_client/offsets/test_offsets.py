"""Commits and committed offsets: membership, retries, and a typed error for every error code."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.coordinator_client.classic._membership import ClassicMembership
from kohort.coordinator_client.machine._error_code_actions import CoordinatorAction, action_for
from kohort.coordinator_client.offsets._offsets import UNRESOLVED_RETRIES
from kohort.errors import (
    BrokerResponseError,
    CommitFailedError,
    ErrorCode,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageDecodeError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_class,
)
from kohort.protocol import ApiKey
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.coordinator_client.fakes import (
    Consumer,
    FakeCluster,
    FakeHost,
    commit_all,
    running,
    topic,
)

pytestmark = pytest.mark.anyio

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT = OffsetAndMetadata(5, "note", 3)
CODES = [*(code for code in ErrorCode if code is not ErrorCode.NONE), 9999]


async def _stable(consumer: Consumer) -> None:
    consumer.client.subscribe(["t"])
    await consumer.until_state("stable")


def _refuse_once(cluster: FakeCluster, code: int) -> None:
    answers = [code]
    cluster.on(
        OffsetCommitRequest, lambda message: commit_all(message, answers.pop(0) if answers else 0)
    )


# --- commit ---------------------------------------------------------------------------------------


async def test_a_commit_carries_the_membership_and_the_leader_epoch() -> None:
    async with running() as consumer:
        await _stable(consumer)
        await consumer.client.commit({T0: AT, T1: OffsetAndMetadata(7)}, 5)
        (request,) = consumer.cluster.requests(OffsetCommitRequest)
        assert request.generation_id_or_member_epoch == 1
        assert (request.member_id, request.group_id) == ("member-1", "g")
        (topic,) = request.topics
        assert [
            (p.partition_index, p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
            for p in topic.partitions
        ] == [(0, 5, "note", 3), (1, 7, "", -1)]


async def test_commit_without_a_subscription_is_from_outside_the_group() -> None:
    async with running(group_instance_id="i1") as consumer:
        await consumer.client.commit({T0: AT}, 5)
        (request,) = consumer.cluster.requests(OffsetCommitRequest)
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        assert request.group_instance_id is None


async def test_a_commit_of_nothing_asks_nobody() -> None:
    async with running() as consumer:
        await consumer.client.commit({}, 5)
        assert not consumer.cluster.sent


async def test_topics_are_named_unless_all_their_ids_are_known() -> None:
    cluster = FakeCluster(t=2)
    async with running(cluster) as consumer:
        await consumer.client.commit({T0: AT}, 5)
        assert cluster.sent[-1].version == 9
        cluster.topics["t"] = topic(2, bytes(range(16)))
        cluster.on(OffsetCommitRequest, _answer_by_id)
        await consumer.client.commit({T0: AT}, 5)
        assert cluster.sent[-1].version == 10
        assert cluster.requests(OffsetCommitRequest)[-1].topics[0].topic_id == bytes(range(16))


def _answer_by_id(message: OffsetCommitRequest) -> OffsetCommitResponse:
    response = commit_all(message)
    for each in response.topics:
        each.name = ""
    return response


async def test_commit_of_unassigned_partitions_is_refused_unsent() -> None:
    async with running() as consumer:
        await _stable(consumer)
        stranger = TopicPartition("t", 9)
        with pytest.raises(CommitFailedError, match="t 9 is not assigned") as caught:
            await consumer.client.commit({T0: AT, stranger: AT}, 5)
        assert caught.value.offsets == {stranger: AT}
        assert not consumer.cluster.requests(OffsetCommitRequest)


async def test_a_consumer_that_has_not_joined_yet_may_not_commit() -> None:
    async with running(host=FakeHost(gate=anyio.Event())) as consumer:
        consumer.client.subscribe(["t"])
        with pytest.raises(CommitFailedError, match="not a member"):
            await consumer.client.commit({T0: AT}, 5)


async def test_a_commit_in_the_revoked_callback_counts() -> None:
    outcome: list[str] = []

    class Committing(FakeHost):
        async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await box[0].client.commit({T0: AT}, 5)
            outcome.append("committed")

    box: list[Consumer] = []
    async with running(host=Committing()) as consumer:
        box.append(consumer)
        await _stable(consumer)
        await consumer.client.leave("done", 5)
        assert outcome == ["committed"]
        with pytest.raises(CommitFailedError):
            consumer.client.subscribe(["t"])
            await consumer.client.commit({T0: AT}, 5)


async def test_a_commit_in_the_lost_callback_fails_and_is_not_sent() -> None:
    outcome: list[Exception] = []

    class Committing(FakeHost):
        async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
            try:
                await box[0].client.commit({T0: AT}, 5)
            except CommitFailedError as error:
                outcome.append(error)

    box: list[Consumer] = []
    async with running(host=Committing()) as consumer:
        box.append(consumer)
        await _stable(consumer)
        consumer.cluster.once(HeartbeatRequest, HeartbeatResponse(error_code=25))
        await consumer.until(lambda: outcome)
        assert not consumer.cluster.requests(OffsetCommitRequest)


async def test_between_join_and_sync_a_commit_is_told_to_come_back() -> None:
    cluster = FakeCluster(t=2)
    parked = anyio.Event()
    sync = cluster.handlers[SyncGroupRequest]
    async with running(cluster, assignors=["range"]) as consumer:
        await _stable(consumer)
        machine = consumer.client._membership
        assert isinstance(machine, ClassicMembership)
        machine.member.settings.cooperative = True

        async def slow(message: Any) -> Any:
            await parked.wait()
            return sync(message)

        cluster.on(SyncGroupRequest, slow)
        consumer.client.request_rejoin("now")
        await consumer.until_state("syncing")
        with pytest.raises(RebalanceInProgressError, match="poll"):
            await consumer.client.commit({T0: AT}, 5)
        parked.set()
        await consumer.until_state("stable")
        await consumer.client.commit({T0: AT}, 5)
        (request,) = cluster.requests(OffsetCommitRequest)
        assert request.generation_id_or_member_epoch == 2


async def test_commit_overtaken_by_rebalance_is_sent_in_new_generation() -> None:
    cluster = FakeCluster(t=2)
    async with running(cluster) as consumer:
        await _stable(consumer)

        async def overtaken(message: OffsetCommitRequest) -> OffsetCommitResponse:
            if message.generation_id_or_member_epoch == 1:
                consumer.client.request_rejoin("now")
                await consumer.until(lambda: consumer.client.snapshot().generation_id == 2)
                await consumer.until_state("stable")
                return commit_all(message, ErrorCode.ILLEGAL_GENERATION)
            return commit_all(message)

        cluster.on(OffsetCommitRequest, overtaken)
        await consumer.client.commit({T0: AT}, 5)
        generations = [
            request.generation_id_or_member_epoch
            for request in cluster.requests(OffsetCommitRequest)
        ]
        assert generations == [1, 2]
        assert consumer.client.snapshot().generation_id == 2, "no member was evicted"


async def test_commit_of_a_lost_membership_is_not_sent_in_the_next() -> None:
    cluster = FakeCluster(t=2)
    async with running(cluster) as consumer:
        await _stable(consumer)

        async def overtaken(message: OffsetCommitRequest) -> OffsetCommitResponse:
            cluster.once(HeartbeatRequest, HeartbeatResponse(error_code=25))
            await consumer.until(lambda: consumer.client.snapshot().generation_id == 2)
            await consumer.until_state("stable")
            return commit_all(message, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        cluster.on(OffsetCommitRequest, overtaken)
        with pytest.raises(CommitFailedError, match="lost its membership"):
            await consumer.client.commit({T0: AT}, 20)
        assert len(cluster.requests(OffsetCommitRequest)) == 1


async def test_every_code_for_a_member_is_recovered_from_or_raised() -> None:
    for code in CODES:
        await _commit_answered(code)


async def _commit_answered(code: int) -> None:
    host = FakeHost()
    async with running(host=host) as consumer:
        await _stable(consumer)
        _refuse_once(consumer.cluster, code)
        host.gate = anyio.Event()
        match action_for(ApiKey.OFFSET_COMMIT, code):
            case CoordinatorAction.RETRY | CoordinatorAction.REDISCOVER as action:
                await consumer.client.commit({T0: AT}, 5)
                finds = len(consumer.cluster.requests(FindCoordinatorRequest))
                assert finds == (2 if action is CoordinatorAction.REDISCOVER else 1)
                assert consumer.client.snapshot().state == "stable"
            case CoordinatorAction.REJOIN:
                with pytest.raises(RebalanceInProgressError):
                    await consumer.client.commit({T0: AT}, 5)
                assert consumer.client.needs_poll
            case (
                CoordinatorAction.LOSE_GENERATION
                | CoordinatorAction.LOSE_MEMBER
                | CoordinatorAction.FENCED
            ):
                with pytest.raises(CommitFailedError) as caught:
                    await consumer.client.commit({T0: AT}, 5)
                assert caught.value.offsets == {T0: AT}
                assert isinstance(caught.value.__cause__, error_class(code))
                assert consumer.client.snapshot().generation_id == -1
            case _:
                with pytest.raises(error_class(code)) as refused:
                    await consumer.client.commit({T0: AT}, 5)
                assert isinstance(refused.value, BrokerResponseError)
                assert refused.value.code == code
                assert consumer.client.snapshot().state == "stable"


@pytest.mark.parametrize("code", [22, 25, 27, 69, 82, 113])
async def test_member_error_of_outside_commit_means_group_has_members(code: int) -> None:
    async with running() as consumer:
        _refuse_once(consumer.cluster, code)
        with pytest.raises(CommitFailedError, match="only they may commit"):
            await consumer.client.commit({T0: AT}, 5)


async def test_only_the_refused_partitions_are_committed_again() -> None:
    async with running() as consumer:
        await _stable(consumer)
        codes = [{1: 14}, {}]
        consumer.cluster.on(
            OffsetCommitRequest, lambda message: commit_all(message, codes=codes.pop(0))
        )
        await consumer.client.commit({T0: AT, T1: AT}, 5)
        first, second = consumer.cluster.requests(OffsetCommitRequest)
        assert [p.partition_index for p in first.topics[0].partitions] == [0, 1]
        assert [p.partition_index for p in second.topics[0].partitions] == [1]


async def test_one_partitions_error_names_it() -> None:
    async with running() as consumer:
        await _stable(consumer)
        consumer.cluster.on(OffsetCommitRequest, lambda message: commit_all(message, codes={1: 12}))
        with pytest.raises(OffsetMetadataTooLargeError, match="for t 1"):
            await consumer.client.commit({T0: AT, T1: AT}, 5)


async def test_an_answer_without_the_partition_is_an_error() -> None:
    async with running() as consumer:
        await _stable(consumer)
        consumer.cluster.on(OffsetCommitRequest, lambda _: OffsetCommitResponse())
        with pytest.raises(BrokerResponseError):
            await consumer.client.commit({T0: AT}, 5)


async def test_a_lost_connection_is_survived() -> None:
    async with running() as consumer:
        await _stable(consumer)
        consumer.cluster.once(OffsetCommitRequest, KafkaConnectionError("gone"))
        await consumer.client.commit({T0: AT}, 5)
        assert len(consumer.cluster.requests(FindCoordinatorRequest)) == 2


async def test_garbage_is_raised() -> None:
    async with running() as consumer:
        await _stable(consumer)
        consumer.cluster.once(OffsetCommitRequest, MessageDecodeError("garbage"))
        with pytest.raises(MessageDecodeError):
            await consumer.client.commit({T0: AT}, 5)


async def test_commit_timeout_error_names_what_prevented_the_commit() -> None:
    async with running() as consumer:
        await _stable(consumer)
        consumer.cluster.on(OffsetCommitRequest, lambda message: commit_all(message, 14))
        with pytest.raises(KafkaTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await consumer.client.commit({T0: AT}, 0.1)
        assert 2 <= len(consumer.cluster.requests(OffsetCommitRequest)) <= 15


async def test_a_commit_that_is_repeated_never_overtakes_a_later_one() -> None:
    cluster = FakeCluster(t=2)
    async with running(cluster) as consumer:
        await _stable(consumer)
        stored: list[int] = []
        failures = [14, 14, 14]

        def store(message: OffsetCommitRequest) -> OffsetCommitResponse:
            if failures:
                return commit_all(message, failures.pop())
            stored.append(message.topics[0].partitions[0].committed_offset)
            return commit_all(message)

        cluster.on(OffsetCommitRequest, store)
        async with anyio.create_task_group() as tasks:
            for offset in range(1, 6):
                tasks.start_soon(consumer.client.commit, {T0: OffsetAndMetadata(offset)}, 5)
                await anyio.lowlevel.checkpoint()
        assert stored == [1, 2, 3, 4, 5]


async def test_commit_overtaken_by_a_join_does_not_change_its_state() -> None:
    cluster = FakeCluster(t=2)
    parked = anyio.Event()
    join = cluster.handlers[JoinGroupRequest]
    async with running(cluster, assignors=["range"]) as consumer:
        await _stable(consumer)
        machine = consumer.client._membership
        assert isinstance(machine, ClassicMembership)
        machine.member.settings.cooperative = True

        async def slow(message: Any) -> Any:
            await parked.wait()
            return join(message)

        cluster.on(JoinGroupRequest, slow)
        consumer.client.request_rejoin("now")
        await consumer.until_state("joining")
        await consumer.client.commit({T0: AT}, 5)  # accepted in PreparingRebalance
        _refuse_once(cluster, ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(RebalanceInProgressError):
            await consumer.client.commit({T0: AT}, 5)
        assert consumer.client.snapshot().state == "joining"
        parked.set()
        await consumer.until_state("stable")
        assert consumer.host.names() == ["assigned", "assigned"]


# --- committed ------------------------------------------------------------------------------------


def _fetched(
    message: OffsetFetchRequest, offsets: dict[int, int], code: int = 0, group_code: int = 0
) -> OffsetFetchResponse:
    """Return a response in the form of the request. Partitions without an offset have none."""
    if message.groups:
        group = message.groups[0]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponse.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=group_code,
                    topics=[
                        OffsetFetchResponse.OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                OffsetFetchResponse.OffsetFetchResponsePartitions(
                                    partition_index=number,
                                    committed_offset=offsets.get(number, -1),
                                    committed_leader_epoch=number,
                                    metadata="m",
                                    error_code=code,
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or ()
                    ],
                )
            ]
        )
    return OffsetFetchResponse(
        error_code=group_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=offsets.get(number, -1),
                        metadata="m",
                        error_code=code,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ],
    )


async def test_many_partitions_are_fetched_in_one_request() -> None:
    cluster = FakeCluster(t=100)
    cluster.on(OffsetFetchRequest, lambda message: _fetched(message, {0: 7, 99: 8}))
    async with running(cluster) as consumer:
        asked = [TopicPartition("t", number) for number in range(100)]
        result = await consumer.client.committed(asked, 5)
        assert len(cluster.requests(OffsetFetchRequest)) == 1
        assert result.keys() == set(asked)
        assert {tp.partition: at for tp, at in result.items() if at} == {
            0: OffsetAndMetadata(7, "m", 0),
            99: OffsetAndMetadata(8, "m", 99),
        }


@pytest.mark.parametrize("last", range(1, 11))
async def test_every_version_is_asked_in_its_form(last: int) -> None:
    cluster = FakeCluster()
    cluster.topics["t"] = topic(2, bytes(range(16)))
    cluster.last_version[OffsetFetchRequest] = last
    cluster.on(OffsetFetchRequest, lambda message: _fetched(message, {0: 7}))
    async with running(cluster) as consumer:
        result = await consumer.client.committed([T0, T1], 5)
        assert (result[T0] is not None, result[T1]) == (True, None)
        assert cluster.sent[-1].version == last
        (request,) = cluster.requests(OffsetFetchRequest)
        assert bool(request.groups) == (last >= 8)
        assert request.require_stable == (last >= 7)


async def test_open_transactions_need_not_be_waited_for() -> None:
    cluster = FakeCluster(t=1)
    cluster.on(OffsetFetchRequest, lambda message: _fetched(message, {}))
    async with running(cluster, client_options={"require_stable": False}) as consumer:
        assert await consumer.client.committed([T0], 5) == {T0: None}
        assert not cluster.requests(OffsetFetchRequest)[0].require_stable


async def test_nothing_asked_is_nothing_sent() -> None:
    async with running() as consumer:
        assert await consumer.client.committed([], 5) == {}
        assert not consumer.cluster.sent


@pytest.mark.parametrize("version", [7, 9], ids=["one group", "groups"])
@pytest.mark.parametrize("level", ["code", "group_code"])
async def test_every_code_of_a_fetch_is_recovered_from_or_raised(level: str, version: int) -> None:
    cluster = FakeCluster(t=2)
    cluster.last_version[OffsetFetchRequest] = version
    answers: list[int] = []

    def answer(message: OffsetFetchRequest) -> OffsetFetchResponse:
        return _fetched(message, {0: 7}, **{level: answers.pop() if answers else 0})

    cluster.on(OffsetFetchRequest, answer)
    async with running(cluster) as consumer:
        for code in CODES:
            answers.append(code)
            match action_for(ApiKey.OFFSET_FETCH, code):
                case CoordinatorAction.PROCEED:
                    assert await consumer.client.committed([T0], 5) == {T0: None}
                case CoordinatorAction.RETRY | CoordinatorAction.REDISCOVER:
                    result = await consumer.client.committed([T0], 5)
                    assert result[T0] is not None
                case _:
                    with pytest.raises(error_class(code)):
                        await consumer.client.committed([T0], 5)


async def test_topic_with_an_id_unknown_to_the_broker_is_sent_by_name() -> None:
    cluster = FakeCluster()
    cluster.topics["t"] = topic(2, bytes(range(16)))
    codes = [100]
    cluster.on(
        OffsetFetchRequest,
        lambda message: _fetched(message, {0: 7}, code=codes.pop() if codes else 0),
    )
    async with running(cluster) as consumer:
        assert (await consumer.client.committed([T0], 5))[T0] is not None
        versions = [s.version for s in cluster.sent if isinstance(s.message, OffsetFetchRequest)]
        assert versions == [10, 9]
        assert cluster.refreshes == 1


async def test_an_error_of_one_partition_names_it() -> None:
    cluster = FakeCluster(t=2)
    cluster.on(OffsetFetchRequest, lambda message: _fetched(message, {}, code=29))
    async with running(cluster) as consumer:
        with pytest.raises(TopicAuthorizationFailedError, match="for t 0"):
            await consumer.client.committed([T0], 5)


async def test_offsets_that_stay_undecided_are_a_timeout() -> None:
    cluster = FakeCluster(t=2)
    cluster.on(OffsetFetchRequest, lambda message: _fetched(message, {}, code=88))
    async with running(cluster) as consumer:
        with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            await consumer.client.committed([T0], 0.1)


async def _leave_out(message: Any, part: str) -> OffsetFetchResponse:
    """Respond to OffsetFetch without the result of t 0."""
    response = _fetched(message, {0: 7, 1: 8})
    (group,) = response.groups
    if part == "group":
        response.groups = []
    elif part == "topic":
        group.topics = []
    else:
        group.topics[0].partitions = group.topics[0].partitions[1:]
    return response


@pytest.mark.parametrize("part", ["group", "topic", "partition"])
async def test_absent_committed_offset_is_requested_again(part: str) -> None:
    cluster = FakeCluster(t=2)
    count = 0

    async def respond(message: OffsetFetchRequest) -> OffsetFetchResponse:
        nonlocal count
        count += 1
        return await _leave_out(message, part) if count < 3 else _fetched(message, {0: 7, 1: 8})

    cluster.on(OffsetFetchRequest, respond)
    async with running(cluster) as consumer:
        found = await consumer.client.committed([T0, T1], 60)
    offsets = {tp: at.offset for tp, at in found.items() if at}
    assert offsets == {T0: 7, T1: 8}


@pytest.mark.parametrize("part", ["group", "topic", "partition"])
async def test_absent_committed_offset_raises_protocol_error(part: str) -> None:
    cluster = FakeCluster(t=2)
    cluster.on(OffsetFetchRequest, lambda message: _leave_out(message, part))
    async with running(cluster) as consumer:
        with pytest.raises(ProtocolError, match="leaves out t 0"):
            await consumer.client.committed([T0, T1], None)
        assert len(cluster.requests(OffsetFetchRequest)) == UNRESOLVED_RETRIES + 1


async def test_unknown_topic_is_not_an_absent_committed_offset() -> None:
    cluster = FakeCluster(t=2)

    def respond(message: OffsetFetchRequest) -> OffsetFetchResponse:
        response = _fetched(message, {})
        for at in response.groups[0].topics[0].partitions:
            at.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response

    cluster.on(OffsetFetchRequest, respond)
    async with running(cluster) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match="t 0"):
            await consumer.client.committed([T0], None)
