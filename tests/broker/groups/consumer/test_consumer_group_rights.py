"""Rights that requests to groups of the consumer protocol need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.testing import Authorization, Cluster, Security
from kohort.types import TopicPartition
from tests.broker.raw import Raw, find_coordinator

ANYBODY = "User:ANONYMOUS"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    security = Security(listeners=["PLAINTEXT"], authorization=Authorization())
    settings = {"consumer_assignment_interval_ms": 0}
    topics = {"t": 1, "hidden": 1}
    with Cluster(topics=topics, security=security, group_settings=settings) as cluster:
        cluster.grant(ANYBODY, "READ", group="g")
        cluster.grant(ANYBODY, "READ", topic="t")
        yield cluster


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster) as connection:
        find_coordinator(connection)
        yield connection


def join(
    raw: Raw, topics: list[str] | None, regex: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    return raw.ask(request, 1)


def beat(raw: Raw, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    return raw.ask(request, 1)


def describe(raw: Raw) -> ConsumerGroupDescribeResponse.DescribedGroup:
    (group,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    return group


def test_heartbeat_needs_to_read_the_group(cluster: Cluster, raw: Raw) -> None:
    assert join(raw, ["t"]).error_code == 0
    with cluster.deny(ANYBODY, "READ", group="g"):
        refused = beat(raw, 2)
        assert (refused.error_code, refused.error_message) == (30, None)
        assert (refused.member_id, refused.member_epoch) == (None, 0)
    assert beat(raw, 2).error_code == 0


def test_heartbeat_needs_to_describe_each_named_topic(cluster: Cluster, raw: Raw) -> None:
    assert join(raw, ["t", "hidden"]).error_code == 29
    assert cluster.group("g").state == "Dead"
    assert join(raw, ["t"]).error_code == 0
    with cluster.deny(ANYBODY, "DESCRIBE", topic="t"):
        assert beat(raw, 2).error_code == 0, "it names no topic"
        assert join(raw, ["t"]).error_code == 29


def test_pattern_leaves_out_topics_without_rights(cluster: Cluster, raw: Raw) -> None:
    assert join(raw, None, ".*").error_code == 0
    cluster.wait_until(lambda: cluster.group("g").generation > 1)
    assert beat(raw, 1).error_code == 0
    assert cluster.group("g").assignment == {"m": {TopicPartition("t", 0)}}


def test_description_is_refused_when_a_topic_is_hidden(cluster: Cluster, raw: Raw) -> None:
    join(raw, ["t"])
    assert (describe(raw).error_code, len(describe(raw).members)) == (0, 1)
    with cluster.deny(ANYBODY, "DESCRIBE", topic="t"):
        group = describe(raw)
        assert (group.error_code, group.members) == (29, [])
        assert group.error_message == (
            "The group has described topic(s) that the client is not authorized to describe."
        )
