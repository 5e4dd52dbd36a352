"""``group_protocol="auto"``: the choice at the first join, and what never changes it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.coordinator_client.machine._refusal_series import SERVER_ERRORS
from kohort.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaConnectionError,
    UnsupportedVersionError,
    error_name,
)
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from tests.coordinator_client.fakes import Consumer, FakeCluster, FakeHost, running, topic

pytestmark = pytest.mark.anyio

TOPIC_ID = bytes(range(16))
HEARTBEAT, DESCRIBE_GROUPS = 68, 15
QUICK_AUTO: dict[str, Any] = {"group_protocol": "auto"}


def _versions(
    highest: int | None = 1, level: int | None = 1, *, described: bool = True
) -> ApiVersionsResponse:
    served = {HEARTBEAT: highest, DESCRIBE_GROUPS: 5 if described else None}
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, max_version=version)
            for key, version in served.items()
            if version is not None
        ]
    )
    if level is not None:
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name="group.version", max_version_level=level)
        ]
    return response


def _described(state: str = "Empty", code: int = 0) -> DescribeGroupsResponse:
    group = DescribeGroupsResponse.DescribedGroup(group_id="g", group_state=state, error_code=code)
    return DescribeGroupsResponse(groups=[group])


def _assigned(message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Assign all partitions of the topic to the member that joins."""
    if message.member_epoch < 0:
        return ConsumerGroupHeartbeatResponse(member_epoch=message.member_epoch)
    response = ConsumerGroupHeartbeatResponse(
        member_id=message.member_id, member_epoch=2, heartbeat_interval_ms=20
    )
    if message.member_epoch == 0:
        partitions = ConsumerGroupHeartbeatResponse.TopicPartitions(
            topic_id=TOPIC_ID, partitions=[0, 1, 2, 3]
        )
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[partitions]
        )
    return response


def _cluster(
    versions: ApiVersionsResponse | None = None, described: DescribeGroupsResponse | None = None
) -> FakeCluster:
    cluster = FakeCluster(t=4)
    cluster.topics["t"] = topic(4, TOPIC_ID)
    cluster.on(ApiVersionsRequest, lambda _: versions or _versions())
    cluster.on(DescribeGroupsRequest, lambda _: described or _described())
    cluster.on(ConsumerGroupHeartbeatRequest, _assigned)
    return cluster


async def _joined(consumer: Consumer) -> tuple[str, str]:
    consumer.client.subscribe(["t"])
    await consumer.until_state("stable")
    choice = consumer.client.protocol_choice
    assert choice is not None
    return choice.protocol, choice.reason


@pytest.fixture
def auto() -> Callable[..., Any]:
    """Return a function that runs a client with ``group_protocol="auto"``."""

    def start(cluster: FakeCluster, **options: Any) -> Any:
        return running(cluster, quick=False, **QUICK_AUTO, **options)

    return start


async def test_auto_joins_an_empty_group_by_the_consumer_protocol(auto: Any) -> None:
    async with auto(_cluster()) as consumer:
        protocol, reason = await _joined(consumer)
        assert (protocol, reason) == (
            "consumer",
            "the cluster has it enabled and the group has no classic members",
        )
        assert not consumer.cluster.requests(JoinGroupRequest)
        (request,) = consumer.cluster.requests(ApiVersionsRequest)
        assert request.client_software_name == "kohort"


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (_versions(highest=None), "does not serve"),
        (_versions(highest=0), "early version"),
        (_versions(level=None), "not enabled"),
        (_versions(level=0), "not enabled"),
        (_versions(described=False), "does not serve DescribeGroups"),
    ],
)
async def test_auto_joins_old_brokers_by_the_classic_protocol(
    auto: Any, versions: ApiVersionsResponse, reason: str
) -> None:
    async with auto(_cluster(versions)) as consumer:
        protocol, why = await _joined(consumer)
        assert protocol == "classic"
        assert reason in why
        assert not consumer.cluster.requests(ConsumerGroupHeartbeatRequest)
        assert not consumer.host.failures


async def test_choice_by_versions_waits_for_no_description(auto: Any) -> None:
    cluster = _cluster(_versions(level=0))
    cluster.on(DescribeGroupsRequest, lambda _: anyio.sleep_forever())
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "classic"
        assert not consumer.host.failures


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
async def test_auto_never_converts_a_group_with_classic_members(auto: Any, state: str) -> None:
    async with auto(_cluster(described=_described(state))) as consumer:
        protocol, why = await _joined(consumer)
        assert protocol == "classic"
        assert state in why
        assert not consumer.cluster.requests(ConsumerGroupHeartbeatRequest)


@pytest.mark.parametrize(("state", "code"), [("Empty", 0), ("Dead", 0), ("Dead", 69)])
async def test_auto_joins_groups_without_classic_members(auto: Any, state: str, code: int) -> None:
    async with auto(_cluster(described=_described(state, code))) as consumer:
        assert (await _joined(consumer))[0] == "consumer"


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_auto_retries_when_the_coordinator_is_unstable(auto: Any, code: int) -> None:
    cluster = _cluster()
    cluster.once(DescribeGroupsRequest, _described("", code))
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "consumer"
        assert len(cluster.requests(DescribeGroupsRequest)) == 2
        assert not consumer.host.failures


@pytest.mark.parametrize(
    "lost",
    [[ApiVersionsRequest], [DescribeGroupsRequest], [ApiVersionsRequest, DescribeGroupsRequest]],
)
async def test_auto_retries_after_a_lost_connection(auto: Any, lost: list[type[Any]]) -> None:
    cluster = _cluster()
    for kind in lost:
        cluster.once(kind, KafkaConnectionError("lost"))
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "consumer"
        assert not consumer.host.failures
        assert len(cluster.requests(DescribeGroupsRequest)) == 2


async def test_auto_reports_a_missing_right_and_tries_again(auto: Any) -> None:
    cluster = _cluster()
    cluster.once(DescribeGroupsRequest, _described("", ErrorCode.GROUP_AUTHORIZATION_FAILED))
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "consumer"
        (failure,) = consumer.host.failures
        assert isinstance(failure, GroupAuthorizationFailedError)
        assert "DESCRIBE on group" in str(failure)


async def test_auto_retries_when_the_look_up_fails_in_the_broker(auto: Any) -> None:
    cluster = _cluster()
    cluster.once(DescribeGroupsRequest, *[_described("", -1)] * (SERVER_ERRORS - 2))
    cluster.once(ApiVersionsRequest, ApiVersionsResponse(error_code=-1))
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "consumer"
        assert len(cluster.requests(DescribeGroupsRequest)) == SERVER_ERRORS - 1
        assert not consumer.host.failures


async def test_auto_stays_classic_when_the_look_up_fails_in_a_row(auto: Any) -> None:
    cluster = _cluster(described=_described("", -1))
    async with auto(cluster) as consumer:
        protocol, why = await _joined(consumer)
        assert protocol == "classic"
        assert why == "DescribeGroups failed with UNKNOWN_SERVER_ERROR"
        assert len(cluster.requests(DescribeGroupsRequest)) == SERVER_ERRORS
        assert not consumer.host.failures


async def test_join_names_the_look_up_that_fails_in_the_broker(auto: Any) -> None:
    cluster = _cluster(described=_described("", -1))
    async with auto(cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: consumer.client.statistics().join_obstruction)
        obstruction = consumer.client.statistics().join_obstruction
        assert obstruction is not None
        assert "DescribeGroups failed with UNKNOWN_SERVER_ERROR" in obstruction


@pytest.mark.parametrize("code", [35, 42, 111, 9999])
async def test_auto_stays_classic_when_the_look_up_is_refused(auto: Any, code: int) -> None:
    cluster = _cluster()
    cluster.once(DescribeGroupsRequest, _described("", code))
    async with auto(cluster) as consumer:
        protocol, why = await _joined(consumer)
        assert protocol == "classic"
        assert why == f"DescribeGroups failed with {error_name(code)}"
        assert not consumer.host.failures


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (35, "UNSUPPORTED_VERSION"),
        (69, "GROUP_ID_NOT_FOUND"),
        (29, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
async def test_auto_falls_back_once_when_the_join_is_refused(
    auto: Any, code: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = _cluster()
    cluster.once(
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse(error_code=code, error_message="for a reason"),
    )
    async with auto(cluster) as consumer:
        protocol, why = await _joined(consumer)
        assert protocol == "classic"
        assert f"{name} (for a reason)" in why
        assert not consumer.host.failures
        assert consumer.host.names() == ["assigned"]
    assert caplog.text.count("group protocol classic") == 1


@pytest.mark.parametrize("state", ["Empty", "Stable"])
async def test_auto_chooses_again_after_a_lost_membership(auto: Any, state: str) -> None:
    cluster = _cluster()
    async with auto(cluster) as consumer:
        await _joined(consumer)
        lost = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        cluster.on(DescribeGroupsRequest, lambda _: _described(state))
        cluster.once(ConsumerGroupHeartbeatRequest, lost)
        await consumer.until(lambda: "lost" in consumer.host.names())
        await consumer.until_state("stable")
        expected = "classic" if state == "Stable" else "consumer"
        assert consumer.client.protocol_choice.protocol == expected
        assert bool(cluster.requests(JoinGroupRequest)) is (state == "Stable")
        assert len(cluster.requests(DescribeGroupsRequest)) == 2
        assert consumer.host.names() == ["assigned", "lost", "assigned"]
        assert not consumer.host.failures


def _refusing(cluster: FakeCluster) -> None:
    """Refuse each JoinGroup, as a consumer group does without a common assignor."""
    cluster.on(JoinGroupRequest, lambda _: JoinGroupResponse(error_code=23))


async def test_classic_member_chooses_again_if_assignors_are_refused(auto: Any) -> None:
    cluster = _cluster(described=_described("Stable"))
    async with auto(cluster) as consumer:
        assert (await _joined(consumer))[0] == "classic"
        cluster.on(DescribeGroupsRequest, lambda _: _described("Dead", 69))
        _refusing(cluster)
        consumer.client.request_rejoin("the group became a consumer group")
        await consumer.until(lambda: cluster.requests(ConsumerGroupHeartbeatRequest))
        await consumer.until_state("stable")
        assert consumer.client.protocol_choice.protocol == "consumer"
        assert consumer.host.names() == ["assigned", "revoked", "assigned"]
        assert not consumer.host.failures
        assert len(cluster.requests(DescribeGroupsRequest)) == 2


@pytest.mark.parametrize("state", ["Dead", "Stable"])
async def test_classic_member_chooses_again_after_a_lost_membership(auto: Any, state: str) -> None:
    cluster = _cluster(described=_described("Stable"))
    async with auto(cluster, assignors=("cooperative-sticky",)) as consumer:
        assert (await _joined(consumer))[0] == "classic"
        cluster.on(DescribeGroupsRequest, lambda _: _described(state))
        lost = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        cluster.once(JoinGroupRequest, lost)
        consumer.client.request_rejoin("a test")
        await consumer.until(lambda: "lost" in consumer.host.names())
        await consumer.until_state("stable")
        expected = "classic" if state == "Stable" else "consumer"
        assert consumer.client.protocol_choice.protocol == expected
        assert consumer.host.names() == ["assigned", "lost", "assigned"]
        assert len(cluster.requests(DescribeGroupsRequest)) == 2
        assert not consumer.host.failures


async def test_choice_after_lost_memberships_is_limited_in_time(auto: Any) -> None:
    cluster = _cluster(described=_described("Stable"))
    async with auto(cluster) as consumer:
        await _joined(consumer)
        cluster.on(JoinGroupRequest, lambda _: JoinGroupResponse(error_code=25))
        consumer.client.request_rejoin("a test")
        await consumer.until(lambda: len(cluster.requests(JoinGroupRequest)) >= 20)
        assert len(cluster.requests(DescribeGroupsRequest)) == 2


async def test_auto_reports_refused_assignors_of_a_classic_group(auto: Any) -> None:
    cluster = _cluster(described=_described("Stable"))
    _refusing(cluster)
    async with auto(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: len(consumer.host.failures) >= 5)
        assert isinstance(consumer.host.failures[0], InconsistentGroupProtocolError)
        assert consumer.client.protocol_choice.protocol == "classic"
        assert len(cluster.requests(DescribeGroupsRequest)) == 2, "one more look-up, not one each"
        cluster.on(DescribeGroupsRequest, lambda _: _described("Dead", 69))
        await consumer.client.unsubscribe()
        assert (await _joined(consumer))[0] == "consumer"


async def test_auto_falls_back_when_a_later_join_is_refused(auto: Any) -> None:
    cluster = _cluster()
    async with auto(cluster) as consumer:
        await _joined(consumer)
        codes = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        refused = (ConsumerGroupHeartbeatResponse(error_code=code) for code in codes)
        cluster.once(ConsumerGroupHeartbeatRequest, *refused)
        await consumer.until(lambda: "lost" in consumer.host.names())
        await consumer.until_state("stable")
        assert consumer.client.protocol_choice.protocol == "classic"
        assert not consumer.host.failures


async def test_auto_chooses_again_after_it_has_left(auto: Any) -> None:
    cluster = _cluster()
    async with auto(cluster) as consumer:
        await _joined(consumer)
        losses = consumer.client.statistics().rebalances
        await consumer.client.unsubscribe()
        cluster.on(DescribeGroupsRequest, lambda _: _described("Stable"))
        assert (await _joined(consumer))[0] == "classic"
        assert consumer.client.statistics().rebalances > losses
        await consumer.client.unsubscribe()
        cluster.on(DescribeGroupsRequest, lambda _: _described("Empty"))
        assert (await _joined(consumer))[0] == "consumer"
        assert consumer.host.names() == ["assigned", "revoked"] * 2 + ["assigned"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("session_timeout_ms", 45_000),
        ("heartbeat_interval_ms", 100),
        ("partition_assignment_strategy", ("range",)),
    ],
)
async def test_auto_stays_classic_with_a_classic_protocol_option(
    auto: Any, option: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with auto(_cluster(), **{option: value}) as consumer:
        protocol, why = await _joined(consumer)
        assert (protocol, why) == (
            "classic",
            f"{option} is set, which only the classic protocol has",
        )
        assert not consumer.cluster.requests(ApiVersionsRequest)
    (line,) = [each for each in caplog.messages if "group protocol" in each]
    assert option in line


async def test_auto_refuses_a_broker_pattern_in_a_classic_group(auto: Any) -> None:
    async with auto(_cluster(_versions(level=0))) as consumer:
        consumer.client.subscribe([], "t.*")
        await consumer.until(lambda: consumer.host.failures)
        failure = consumer.host.failures[0]
        assert isinstance(failure, UnsupportedVersionError)
        assert "SubscriptionPattern needs the consumer protocol" in str(failure)
        assert not consumer.cluster.requests(JoinGroupRequest)


@pytest.mark.parametrize("leaves", [True, False])
async def test_classic_member_chooses_again_for_a_broker_pattern(auto: Any, leaves: bool) -> None:
    cluster, parked = _cluster(described=_described("Stable")), anyio.Event()

    async def leave(_: LeaveGroupRequest) -> LeaveGroupResponse:
        await parked.wait()
        return LeaveGroupResponse()

    cluster.on(LeaveGroupRequest, leave)
    async with auto(cluster) as consumer, anyio.create_task_group() as tasks:
        assert (await _joined(consumer))[0] == "classic"
        if leaves:
            tasks.start_soon(consumer.client.unsubscribe)
            await consumer.until_state("leaving")
        consumer.client.subscribe([], "t.*")
        await consumer.until(lambda: cluster.requests(LeaveGroupRequest))
        joins = len(cluster.requests(JoinGroupRequest))
        parked.set()
        await consumer.until(lambda: consumer.host.failures)
        assert isinstance(consumer.host.failures[0], UnsupportedVersionError)
        cluster.on(DescribeGroupsRequest, lambda _: _described("Empty"))
        await consumer.until_state("stable")
        assert consumer.client.protocol_choice.protocol == "consumer"
        assert len(cluster.requests(JoinGroupRequest)) == joins


async def test_auto_leaves_while_the_choice_is_open(auto: Any) -> None:
    cluster, parked = _cluster(), anyio.Event()

    async def wait(_: DescribeGroupsRequest) -> DescribeGroupsResponse:
        await parked.wait()
        return _described()

    cluster.on(DescribeGroupsRequest, wait)
    async with auto(cluster) as consumer:
        consumer.client.subscribe(["t"])
        await consumer.until(lambda: cluster.requests(DescribeGroupsRequest))
        await consumer.client.leave("closed", 0.5)
        assert consumer.client.snapshot().state == "unsubscribed"
        assert not cluster.requests(JoinGroupRequest)


async def test_enforce_rebalance_warns_once_with_the_consumer_protocol(
    auto: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with auto(_cluster()) as consumer:
        await _joined(consumer)
        consumer.client.request_rejoin("one")
        consumer.client.request_rejoin("two")
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert ["enforce_rebalance() has no effect" in each.getMessage() for each in warnings] == [True]


async def test_explicit_consumer_looks_nothing_up() -> None:
    cluster = _cluster()
    async with running(cluster, quick=False, group_protocol="consumer") as consumer:
        protocol, reason = await _joined(consumer)
        assert (protocol, reason) == ("consumer", "the option group_protocol says so")
        assert not cluster.requests(ApiVersionsRequest)
        assert not cluster.requests(DescribeGroupsRequest)


async def test_choice_is_open_before_the_first_join(auto: Any) -> None:
    host = FakeHost(gate=anyio.Event())
    async with auto(_cluster(), host=host) as consumer:
        consumer.client.subscribe(["t"])
        assert consumer.client.protocol_choice is None


async def test_members_with_equal_seeds_have_different_ids(auto: Any) -> None:
    ids = set()
    for _ in range(2):
        async with auto(_cluster()) as consumer:
            await _joined(consumer)
            ids.add(consumer.client.snapshot().member_id)
    assert len(ids) == 2
