"""Errors other than those of the membership: the group does not wait for a session to expire."""

from __future__ import annotations

import anyio
import pytest

from kohort.coordinator_client.machine._refusal_series import SERVER_ERRORS
from kohort.errors import BrokerResponseError, ErrorCode, KafkaError, error_class
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, polled
from tests.support.virtual import run_virtual

REQUESTS = pytest.mark.parametrize(
    ("protocol", "api", "subscribes"),
    [
        ("classic", "Heartbeat", False),
        ("classic", "SyncGroup", True),
        ("classic", "JoinGroup", True),
        ("consumer", "ConsumerGroupHeartbeat", False),
        ("consumer", "ConsumerGroupHeartbeat", True),
    ],
)
"""Group protocol, the request that fails, and whether a subscription causes the request."""
CODES = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
]


@pytest.mark.parametrize("code", CODES)
@REQUESTS
def test_unexpected_error_leaves_no_dead_member_in_the_group(
    protocol: str, api: str, subscribes: bool, code: ErrorCode
) -> None:
    is_retried = protocol == "consumer" and code == ErrorCode.UNKNOWN_SERVER_ERROR
    times = SERVER_ERRORS if is_retried else 1

    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}) as cluster:
            one = MemoryConsumer(cluster, "t", client_id="one", group_protocol=protocol)
            two = MemoryConsumer(cluster, "t", client_id="two", group_protocol=protocol)
            errors: list[KafkaError] = []
            async with one, polled(one, errors), two, polled(two):
                await cluster.wait_until(lambda: _shared(cluster))
                before = {m.client_id: m.member_id for m in cluster.group("g").members}
                with cluster.fail(api, code, client_id="one", times=times) as fault:
                    if subscribes:
                        one.subscribe(["t", "u"])
                    await cluster.wait_until(lambda: fault.hits == times, timeout=30)
                    began = anyio.current_time()
                await cluster.wait_until(lambda: len(errors) == 1, timeout=5)
                await cluster.wait_until(lambda: _shared(cluster), timeout=30)
                assert anyio.current_time() - began < 15, "the session is 45 s"
                after = {m.client_id: m.member_id for m in cluster.group("g").members}
                assert after == before
            _typed(errors, code)
            assert not cluster.group("g").members

    run_virtual(main)


@REQUESTS
def test_a_member_that_closes_after_an_error_leaves_the_group(
    protocol: str, api: str, subscribes: bool
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as consumer:
                with cluster.fail(api, ErrorCode.INVALID_REQUEST, times=None) as fault:
                    if subscribes:
                        consumer.subscribe(["t", "u"])
                    errors = await poll_for(consumer, lambda: fault.hits)
                    errors += await poll_for(consumer, lambda: errors)
                    _typed(errors[:1], ErrorCode.INVALID_REQUEST)
            assert not cluster.group("g").members

    run_virtual(main)


def _shared(cluster: MemoryCluster) -> bool:
    group = cluster.group("g")
    shares = [{tp.topic for tp in m.assignment if tp.topic == "t"} for m in group.members]
    return group.is_stable and shares == [{"t"}, {"t"}]


def _typed(errors: list[KafkaError], code: ErrorCode) -> None:
    (error,) = errors
    assert isinstance(error, BrokerResponseError)
    assert type(error) is error_class(code)
    assert error.code == code


def test_out_of_range_offset_lookup_raises_and_backs_off() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster) as consumer:
                with cluster.fail("ListOffsets", ErrorCode.OFFSET_OUT_OF_RANGE, times=50) as fault:
                    consumer.subscribe(["t"])
                    began = anyio.current_time()
                    errors = await poll_for(consumer, lambda: fault.hits == 50, timeout=100)
                    assert anyio.current_time() - began > 10
                _typed(errors[:1], ErrorCode.OFFSET_OUT_OF_RANGE)

    run_virtual(main)
