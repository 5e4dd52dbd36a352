"""Errors in the thread of the member, and their way to Spark."""

from __future__ import annotations

import logging

import pytest

from kohort.errors import (
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InvalidOptionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    RebalanceListenerError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kohort.spark_connector import _group_driver
from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, GROUP, committed, member
from tests.spark_connector.reading import Query, produce
from tests.spark_connector.user_listeners import Explained, Recording

LISTENERS = "tests.spark_connector.user_listeners"


def error_of(cluster: Cluster, query: Query) -> KafkaError:
    """Run batches until the query raises. Stop it and return the error."""
    found: list[KafkaError] = []

    def raises() -> bool:
        try:
            query.trigger()
        except KafkaError as error:
            found.append(error)
        return bool(found)

    cluster.wait_until(raises, DEADLINE)
    query.stop()
    return found[0]


def test_a_topic_that_is_not_there(cluster: Cluster) -> None:
    query = member(cluster, subscribe="orders,orderz")
    query.start()
    error = error_of(cluster, query)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "no topic is called orderz" in str(error)
    assert "orderz" not in cluster.topics


def test_no_cluster_at_all(cluster: Cluster) -> None:
    query = member(cluster, kafka_request_timeout_ms=1000)
    query._given["kafka.bootstrap.servers"] = "127.0.0.1:1"
    query.start()
    assert isinstance(error_of(cluster, query), NoBrokersAvailable | KafkaTimeoutError)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_group_that_is_not_ours(cluster: Cluster, available_now: bool) -> None:
    query = member(cluster)
    with cluster.fail("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
        if available_now:
            with pytest.raises(GroupAuthorizationFailedError):
                query.start(available_now=True)
            query.stop()
        else:
            query.start()
            assert isinstance(error_of(cluster, query), GroupAuthorizationFailedError)


def test_a_group_that_does_not_come_about(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_group_driver, "REBALANCE_MARGIN_S", 0.1)
    query = member(
        cluster,
        kafka_max_poll_interval_ms=300,
        kafka_session_timeout_ms=6000,
        rebalanceWait="100ms",
    )
    with cluster.hang("JoinGroup"):
        with pytest.raises(KafkaTimeoutError, match="group billing was not joined"):
            query.start(available_now=True)
        query.stop()


def test_offsets_that_may_not_be_looked_up(cluster: Cluster) -> None:
    query = member(cluster)
    with cluster.fail("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None):
        query.start()
        assert isinstance(error_of(cluster, query), TopicAuthorizationFailedError)
    assert not cluster.group(GROUP).members


def test_a_static_member_is_put_out_by_another(cluster: Cluster) -> None:
    produce(cluster, 5)
    first, second = (member(cluster, kafka_group_instance_id="only") for _ in range(2))
    first.start()
    first.trigger()
    second.start()
    second.trigger()
    assert isinstance(error_of(cluster, first), FencedInstanceIdError)
    second.stop()
    assert len(cluster.group(GROUP).members) == 1  # static: it stays for a restart


def test_refused_commits_fail_no_query_and_are_made_later(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    expected = produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    with (
        caplog.at_level(logging.WARNING, "kohort.spark_connector"),
        cluster.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None) as fault,
    ):
        query.trigger()
        cluster.wait_until(lambda: fault.hits, DEADLINE)
        expected += produce(cluster, 5)
        cluster.wait_until(query.trigger, DEADLINE)
        assert query.values() == expected
        assert committed(cluster)[0] == 0
    query.trigger()
    cluster.wait_until(lambda: committed(cluster)[0] == 10, DEADLINE)
    assert "a commit failed" in caplog.text
    query.stop()


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_start_that_cannot_be_committed_yet_is_committed_later(
    cluster: Cluster, refusal: ErrorCode
) -> None:
    expected = produce(cluster, 5)
    query = member(cluster, kafka_session_timeout_ms=6000)
    with cluster.fail("OffsetCommit", refusal, times=1):
        query.start()
        cluster.wait_until(lambda: query.trigger() and query.values(), DEADLINE)
    query.stop()
    assert query.values() == expected


def test_an_outage_makes_a_query_wait(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_group_driver, "NEW_ENDS_S", 1.0)
    expected = produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    cluster.kill_broker(1)
    for _ in range(3):
        assert not query.trigger()
    cluster.start_broker(1)
    expected += produce(cluster, 5)
    cluster.wait_until(query.trigger, DEADLINE)
    query.stop()
    assert query.values() == expected


def test_a_listener_of_the_users_is_told(cluster: Cluster) -> None:
    Recording.calls.clear()
    query = member(cluster, rebalanceListener=f"{LISTENERS}:Recording")
    query.start()
    query.trigger()
    query.stop()
    assert Recording.calls == [
        ("assigned", {0, 1, 2}, "kohort-spark-member"),
        ("revoked", {0, 1, 2}, "kohort-spark-member"),
    ]


def test_a_listener_gets_the_context_it_asks_for(cluster: Cluster) -> None:
    Explained.causes.clear()
    query = member(cluster, rebalanceListener=f"{LISTENERS}:Explained")
    query.start()
    query.trigger()
    query.stop()
    assert Explained.causes == ["subscribed", "closed"]


def test_a_listener_that_raises_ends_the_query(cluster: Cluster) -> None:
    query = member(cluster, rebalanceListener=f"{LISTENERS}:Raising")
    query.start()
    error = error_of(cluster, query)
    assert isinstance(error, RebalanceListenerError)
    assert "Raising.on_partitions_assigned raised LookupError" in str(error)
    assert isinstance(error.__cause__, LookupError)
    assert not cluster.group(GROUP).members


@pytest.mark.parametrize("name", ["Choosy", "DEADLINE", "Nothing", "threading"])
def test_a_listener_that_cannot_be_made(cluster: Cluster, name: str) -> None:
    query = member(cluster, rebalanceListener=f"{LISTENERS}:{name}")
    query.start()
    with pytest.raises(InvalidOptionError, match="option rebalanceListener"):
        query.trigger()
    query.stop()
