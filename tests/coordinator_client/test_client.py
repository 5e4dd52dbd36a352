"""The coordinator client: commands become requests and calls, responses become events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import anyio
import pytest

from kohort.coordinator_client.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Subscription,
)
from kohort.coordinator_client.classic._embedded_protocol import read_assignment, read_subscription
from kohort.errors import (
    AssignorError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupError,
    KafkaConnectionError,
    KafkaTimeoutError,
)
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.types import ConsumerGroupMetadata, TopicPartition
from tests.coordinator_client.fakes import FakeCluster, FakeHost, running, topic
from tests.coordinator_client.scripts import parts

pytestmark = pytest.mark.anyio


async def test_a_member_joins_syncs_and_heartbeats() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert consumer.host.calls == [("assigned", parts(0, 1, 2, 3))]
        first, second = consumer.cluster.requests(JoinGroupRequest)
        assert (first.member_id, second.member_id) == ("", "member-1")
        assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (2000, 60_000)
        assert [each.name for each in second.protocols] == ["range", "roundrobin"]
        said = read_subscription(second.protocols[0].metadata)
        assert (said.topics, said.owned, said.generation) == (("t",), (), -1)
        (sync,) = consumer.cluster.requests(SyncGroupRequest)
        assert sync.protocol_name == "range"
        assert set(read_assignment(sync.assignments[0].assignment).partitions) == parts(0, 1, 2, 3)
        await consumer.until(lambda: len(consumer.cluster.requests(HeartbeatRequest)) >= 3)
        now = consumer.client.snapshot()
        assert (now.generation_id, now.member_id, now.protocol) == (1, "member-1", "range")
        assert (now.coordinator, now.owned) == (1, parts(0, 1, 2, 3))
        assert [record.reason for record in consumer.client.rebalances] == ["subscribed"]


async def test_parked_requests_have_a_connection_of_their_own() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.cluster.requests(HeartbeatRequest))
        await consumer.client.leave("done")
        purposes = {type(sent.message): sent.purpose for sent in consumer.cluster.sent}
        assert purposes[JoinGroupRequest] == purposes[SyncGroupRequest] == "coordinator-join"
        assert purposes[HeartbeatRequest] == purposes[LeaveGroupRequest] == "coordinator"
        assert set(consumer.cluster.prepared) == {(1, "coordinator")}
        nodes = {type(sent.message): sent.node for sent in consumer.cluster.sent}
        assert nodes[FindCoordinatorRequest] is None, "the least loaded broker is asked"
        assert nodes[JoinGroupRequest] == 1


async def test_subscribing_before_the_client_runs_joins_when_it_does() -> None:
    cluster, host = FakeCluster(t=1), FakeHost()
    async with running(cluster, host) as consumer:
        consumer.client.subscribe(["t"])  # before run() first runs
        await consumer.until_state("stable")


async def test_heartbeats_go_on_while_a_callback_runs() -> None:
    host = FakeHost(hold=anyio.Event())
    async with running(host=host) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: "assigned" in host.names())
        await consumer.until(lambda: len(consumer.cluster.requests(HeartbeatRequest)) >= 3)
        assert consumer.client.snapshot().state == "reconciling"
        assert host.hold is not None
        host.hold.set()
        await consumer.until_state("stable")


async def test_a_rebalance_waits_for_poll_and_then_goes_through() -> None:
    async with running() as consumer:
        host, cluster, client = consumer.host, consumer.cluster, consumer.client
        client.subscribe(["t"])
        await consumer.until_state("stable")
        host.gate = anyio.Event()
        cluster.once(HeartbeatRequest, HeartbeatResponse(error_code=27))
        await consumer.until(lambda: client.needs_poll)
        await consumer.until(lambda: len(cluster.requests(HeartbeatRequest)) >= 4)
        assert host.names() == ["assigned"]
        assert client.snapshot().owned == parts(0, 1, 2, 3)
        host.gate.set()
        await consumer.until(lambda: client.snapshot().generation_id == 2)
        await consumer.until_state("stable")
        assert host.names() == ["assigned", "revoked", "assigned"]


async def test_leaving_calls_revoked_then_leaves() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        await consumer.client.leave("the consumer closed", 5)
        assert consumer.host.names() == ["assigned", "revoked"]
        (request,) = consumer.cluster.requests(LeaveGroupRequest)
        (member,) = request.members
        assert (member.member_id, member.reason) == ("member-1", "the consumer closed")
        assert consumer.client.snapshot().state == "unsubscribed"


async def test_an_old_broker_is_asked_in_the_old_forms() -> None:
    cluster = FakeCluster(t=1)
    cluster.last_version = {LeaveGroupRequest: 2, FindCoordinatorRequest: 1}
    async with running(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        await consumer.client.leave("done")
        assert cluster.requests(FindCoordinatorRequest)[0].key == "g"
        assert cluster.requests(LeaveGroupRequest)[0].member_id == "member-1"


async def test_unsubscribing_and_subscribing_again_joins_anew() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        await consumer.client.unsubscribe()
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert consumer.client.snapshot().generation_id == 2


async def test_a_static_member_says_who_it_is_and_goes_silently() -> None:
    async with running(group_instance_id="i1") as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.cluster.requests(HeartbeatRequest))
        await consumer.client.leave("done")
        assert not consumer.cluster.requests(LeaveGroupRequest)
        instance_ids = [
            each.group_instance_id for each in consumer.cluster.requests(JoinGroupRequest)
        ]
        instance_ids += [
            each.group_instance_id for each in consumer.cluster.requests(SyncGroupRequest)
        ]
        instance_ids += [
            each.group_instance_id for each in consumer.cluster.requests(HeartbeatRequest)
        ]
        assert set(instance_ids) == {"i1"}


async def test_a_static_member_leaves_when_it_is_told_to() -> None:
    async with running(group_instance_id="i1") as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        await consumer.client.leave("done", leave_group=True)
        (request,) = consumer.cluster.requests(LeaveGroupRequest)
        assert request.members[0].group_instance_id == "i1"


async def test_leaving_while_a_callback_hangs_ends_in_time() -> None:
    host = FakeHost(hold=anyio.Event())
    async with running(host=host) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: "assigned" in host.names())
        with pytest.raises(KafkaTimeoutError, match="leaving"):
            await consumer.client.leave("done", 0.05)


async def test_leaving_without_having_joined_is_no_trouble() -> None:
    async with running() as consumer:
        await consumer.client.leave("done", 1)
        assert not consumer.cluster.sent


async def test_the_coordinator_is_looked_up_anew_when_it_is_another() -> None:
    async with running() as consumer:
        cluster = consumer.cluster
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        cluster.coordinator = 2
        cluster.once(HeartbeatRequest, HeartbeatResponse(error_code=16))
        await consumer.until(lambda: consumer.client.snapshot().coordinator == 2)
        beats = len(cluster.requests(HeartbeatRequest))
        await consumer.until(lambda: len(cluster.requests(HeartbeatRequest)) > beats)
        assert cluster.sent[-1].node == 2
        assert consumer.client.snapshot().state == "stable"


async def test_a_lost_connection_makes_the_coordinator_unknown() -> None:
    async with running() as consumer:
        cluster = consumer.cluster
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        cluster.coordinator = 3
        cluster.once(HeartbeatRequest, KafkaConnectionError("gone"))
        await consumer.until(lambda: consumer.client.snapshot().coordinator == 3)
        assert consumer.client.snapshot().state == "stable"


async def test_coordinator_is_looked_up_until_it_is_available() -> None:
    cluster = FakeCluster(t=1)
    answer = FindCoordinatorResponse.Coordinator(key="g", node_id=-1, error_code=15)
    cluster.once(
        FindCoordinatorRequest,
        FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(key="other")]),
        KafkaConnectionError("gone"),
        FindCoordinatorResponse(coordinators=[answer]),
    )
    async with running(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert len(cluster.requests(FindCoordinatorRequest)) == 4


async def test_a_group_that_may_not_be_used_is_reported() -> None:
    cluster = FakeCluster(t=1)
    refused = FindCoordinatorResponse.Coordinator(key="g", error_code=30)
    cluster.on(FindCoordinatorRequest, lambda _: FindCoordinatorResponse(coordinators=[refused]))
    async with running(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.host.failures)
        assert isinstance(consumer.host.failures[0], GroupAuthorizationFailedError)
        assert consumer.client.snapshot().state in ("failed", "join pending", "joining")


async def test_a_fenced_static_member_is_told_so_and_stays_out() -> None:
    async with running(group_instance_id="i1") as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        consumer.cluster.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=82))
        await consumer.until_state("failed")
        assert consumer.host.names() == ["assigned", "lost"]
        assert consumer.host.withheld == [consumer.host.calls[0][1]]
        assert isinstance(consumer.host.failures[0], FencedInstanceIdError)


async def test_the_leader_asks_for_topics_that_it_does_not_know() -> None:
    cluster = FakeCluster()
    cluster.hidden = {"t": topic(2)}
    async with running(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert consumer.client.snapshot().owned == parts(0, 1)


async def test_a_topic_that_does_not_exist_assigns_nothing() -> None:
    async with running(FakeCluster()) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert consumer.host.calls == [("assigned", frozenset())]


async def test_the_leader_deals_anew_when_partitions_are_added() -> None:
    watched: list[frozenset[str]] = []
    options = {"on_group_topics": watched.append}
    async with running(client_options=options) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert watched == [frozenset({"t"})]
        assert consumer.client.group_topics == {"t"}
        consumer.client.apply_metadata()
        assert consumer.client.snapshot().state == "stable"
        consumer.cluster.topics.clear()
        consumer.client.apply_metadata()
        assert consumer.client.snapshot().state == "stable", "missing metadata is no change"
        consumer.cluster.topics["t"] = topic(6)
        consumer.client.apply_metadata()
        await consumer.until_stable(2)
        assert len(consumer.client.snapshot().owned) == 6
        assert consumer.client.rebalances[-1].reason == "partitions changed: t 4 -> 6"


async def test_a_rebalance_can_be_asked_for() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        consumer.client.request_rejoin("because I say so" * 100)
        await consumer.until(lambda: consumer.client.snapshot().generation_id == 2)
        reason = consumer.cluster.requests(JoinGroupRequest)[-1].reason
        assert reason is not None
        assert reason.startswith("because I say so")
        assert len(reason) == 255


class Custom(PartitionAssignor):
    name: ClassVar[str] = "custom"

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.assignments: Any = None

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        if isinstance(self.assignments, Exception):
            raise self.assignments
        if self.assignments is not None:
            return self.assignments  # type: ignore[no-any-return]  # wrong on purpose
        (member,) = subscriptions
        assert subscriptions[member].user_data == b"topics: t"
        return {member: Assignment((TopicPartition("t", 2),), b"hello")}

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        return f"topics: {','.join(topics)}".encode()

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self.received.append((assignment, metadata.generation_id, metadata.member_id))


async def test_an_assignor_of_ones_own_runs_through_the_host() -> None:
    custom = Custom()
    async with running(assignors=[custom]) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        assert consumer.client.snapshot().owned == parts(2)
        assert custom.received == [(Assignment((TopicPartition("t", 2),), b"hello"), 1, "member-1")]
        # twice for the user data of two JoinGroups, once for on_assignment
        assert consumer.host.names() == ["assignor", "assignor", "assignor", "assigned"]


async def test_partitions_lost_before_on_assigned_are_withheld() -> None:
    class Slow(FakeHost):
        async def call_assignor(self, function: Callable[[], Any]) -> Any:
            result = function()
            if result is None:  # it is on_assignment(), which delays on_assigned()
                consumer.cluster.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=25))
                await consumer.until(lambda: consumer.client.snapshot().generation_id == -1)
            return result

    async with running(host=Slow(), assignors=[Custom()]) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: "assigned" in consumer.host.names())
        assert ("assigned", parts(2)) in consumer.host.calls
        assert consumer.host.delivered[0] == frozenset()
        await consumer.until(lambda: "lost" in consumer.host.names())


@pytest.mark.parametrize(
    "assignments",
    [
        RuntimeError("boom"),
        {"member-1": [TopicPartition("t", 9)]},
        {"member-1": [TopicPartition("u", 0)]},
        {"member-1": [TopicPartition("t", 0), TopicPartition("t", 0)]},
        {"nobody": [TopicPartition("t", 0)]},
        {"member-1": [3]},
        ["member-1"],
    ],
    ids=str,
)
async def test_an_assignor_that_raises_or_deals_nonsense_is_reported(assignments: Any) -> None:
    custom = Custom()
    custom.assignments = assignments
    async with running(assignors=[custom]) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.host.failures)
        assert isinstance(consumer.host.failures[0], AssignorError)
        assert "custom" in str(consumer.host.failures[0])
        await consumer.until(lambda: consumer.cluster.requests(LeaveGroupRequest))


async def test_callback_error_of_the_host_does_not_stop_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Raising(FakeHost):
        async def on_assigned(self, added: Any, assignment: Any, withheld: Any) -> None:
            raise RuntimeError("an error in the callback")

    caplog.set_level(logging.CRITICAL)
    async with running(host=Raising()) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")


async def test_a_defect_is_reported_and_does_not_raise(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeHost):
        def last_poll(self) -> float:
            raise ZeroDivisionError

    caplog.set_level(logging.CRITICAL)
    async with running(host=Broken()) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.host.failures)
        assert isinstance(consumer.host.failures[0], GroupError)
        await consumer.client.leave("done", 1)


async def test_cancellation_at_any_point_leaves_nothing_behind() -> None:
    for turns in range(40):
        async with running() as consumer:
            consumer.client.subscribe(["t"])
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()


async def test_coordinator_is_looked_up_after_a_session_of_silence() -> None:
    cluster = FakeCluster(t=1)
    async with running(cluster, session_timeout_ms=150) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        forever = anyio.Event()

        async def silent(_: Any) -> None:
            await forever.wait()

        answer = cluster.handlers[HeartbeatRequest]
        cluster.on(HeartbeatRequest, silent)
        cluster.coordinator = 2
        await consumer.until(lambda: consumer.client.snapshot().coordinator == 2)
        cluster.on(HeartbeatRequest, answer)
        assert consumer.client.snapshot().owned == parts(0)


async def test_caller_without_poll_loses_and_regains_its_membership() -> None:
    async with running(max_poll_interval_ms=100, rebalance_timeout_ms=100) as consumer:
        host = consumer.host
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        host.gate, host.polled_at = anyio.Event(), anyio.current_time()
        await consumer.until(lambda: consumer.cluster.requests(LeaveGroupRequest))
        assert host.names() == ["assigned"]
        host.polled_at = None
        host.gate.set()
        await consumer.until_state("stable")
        assert host.names() == ["assigned", "lost", "assigned"]


async def test_racks_reach_the_assignor_and_a_moved_replica_rebalances() -> None:
    cluster = FakeCluster(t=1)
    async with running(cluster, client_rack="r1") as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        said = read_subscription(cluster.requests(JoinGroupRequest)[-1].protocols[0].metadata)
        assert said.rack == "r1"
        consumer.client.apply_metadata()
        assert consumer.client.snapshot().state == "stable"
        cluster.topics["t"] = topic(1, replicas=(2,))
        consumer.client.apply_metadata()
        await consumer.until_stable(2)
        assert consumer.client.rebalances[-1].reason == "partitions changed: racks"


async def test_a_join_that_was_given_up_does_not_hold_up_the_next() -> None:
    cluster = FakeCluster(t=1)
    join, forever = cluster.handlers[JoinGroupRequest], anyio.Event()

    async def parked(_: Any) -> None:
        await forever.wait()

    cluster.on(JoinGroupRequest, parked)
    async with running(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: cluster.requests(JoinGroupRequest))
        await consumer.client.unsubscribe()
        cluster.on(JoinGroupRequest, join)
        consumer.client.subscribe(["t"])
        await consumer.until_state("stable")
        purposes = [s.purpose for s in cluster.sent if isinstance(s.message, JoinGroupRequest)]
        assert purposes == ["coordinator-join", "coordinator-join-1", "coordinator-join-1"]


async def test_leader_looks_ahead_in_the_first_generation_only() -> None:
    async with running() as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until_stable(1)
        assert consumer.host.looked_ahead == [parts(0, 1, 2, 3)]
        consumer.client.request_rejoin("test")
        await consumer.until_stable(2)
        assert consumer.host.looked_ahead == [parts(0, 1, 2, 3)]
