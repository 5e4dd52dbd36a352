"""Admin clients on the in-process cluster: topics, settings and brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.admin import ConfigResource, NewTopic, PartitionDescription
from kohort.errors import (
    ErrorCode,
    InvalidPartitionsError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kohort.testing import Cluster
from tests.support.awaited import EACH_ADMIN

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={"orders": 3}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 10}


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"


@EACH_ADMIN
@pytest.mark.anyio
async def test_cluster_has_its_brokers(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    async with admin_class(**options) as admin:
        found = await admin.describe_cluster()
    assert [each.id for each in found.brokers] == [1, 2]
    assert found.controller in (1, 2)
    addresses = {f"{each.host}:{each.port}" for each in found.brokers}
    assert addresses == set(cluster.bootstrap_servers.split(","))


@EACH_ADMIN
@pytest.mark.anyio
async def test_topics_are_created_described_grown_and_deleted(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], topic: str
) -> None:
    async with admin_class(**options) as admin:
        new = {topic: NewTopic(2, 1, {"retention.ms": "5000"}), "orders": 1}
        created = await admin.create_topics(new)
        assert list(created) == [topic]
        assert isinstance(created.errors["orders"], TopicAlreadyExistsError)
        assert topic in await admin.list_topics()
        described = await admin.describe_topics([topic, "absent"])
        assert [each.partition for each in described[topic].partitions] == [0, 1]
        assert described[topic].topic_id is not None
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'absent' does not exist"):
            described["absent"]
        grown = await admin.create_partitions({topic: 4, "orders": 2})
        assert list(grown) == [topic]
        assert isinstance(grown.errors["orders"], InvalidPartitionsError)
        assert len((await admin.describe_topics(topic))[topic].partitions) == 4
        deleted = await admin.delete_topics([topic, "absent"])
        assert list(deleted) == [topic]
        assert isinstance(deleted.errors["absent"], UnknownTopicOrPartitionError)
        assert topic not in cluster.topics


@EACH_ADMIN
@pytest.mark.anyio
async def test_defaults_and_assignments_of_new_topics(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], topic: str
) -> None:
    async with admin_class(**options) as admin:
        (await admin.create_topics([topic], validate_only=True)).raise_errors()
        assert topic not in cluster.topics
        (await admin.create_topics([topic])).raise_errors()
        assert cluster.topics[topic] == 1
        other = f"{topic}-assigned"
        assigned = NewTopic(assignments={0: [2], 1: [1]})
        (await admin.create_topics({other: assigned})).raise_errors()
        found = (await admin.describe_topics(other))[other].partitions
        assert found == (
            PartitionDescription(0, 2, (2,), (2,)),
            PartitionDescription(1, 1, (1,), (1,)),
        )


@EACH_ADMIN
@pytest.mark.anyio
async def test_internal_topics_are_listed_on_demand(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    async with admin_class(**options) as admin:
        (await admin.alter_group_offsets("g", {("orders", 0): 0})).raise_errors()
        names = await admin.list_topics()
        assert "orders" in names and "__consumer_offsets" not in names
        assert "__consumer_offsets" in await admin.list_topics(include_internal=True)
        found = await admin.describe_topics()
        assert found["__consumer_offsets"].is_internal


@EACH_ADMIN
@pytest.mark.anyio
async def test_settings_are_described_and_changed_one_by_one(
    admin_class: Any, options: dict[str, Any], topic: str
) -> None:
    async with admin_class(**options) as admin:
        new = {topic: NewTopic(configs={"retention.ms": "5000", "cleanup.policy": "compact"})}
        (await admin.create_topics(new)).raise_errors()
        resource, absent = ConfigResource("topic", topic), ConfigResource("topic", "absent")
        broker = ConfigResource("broker", "2")
        found = await admin.describe_configs([resource, absent, broker])
        assert found[resource]["retention.ms"][:2] == ("5000", "topic")
        assert "log.retention.ms" in found[broker]
        assert isinstance(found.errors[absent], UnknownTopicOrPartitionError)
        changes = {resource: {"retention.ms": None, "segment.bytes": "2097152"}}
        (await admin.alter_configs(changes, validate_only=True)).raise_errors()
        assert (await admin.describe_configs([resource]))[resource]["retention.ms"][0] == "5000"
        changed = await admin.alter_configs({**changes, absent: {"retention.ms": "1"}})
        assert list(changed) == [resource] and list(changed.errors) == [absent]
        now = (await admin.describe_configs([resource]))[resource]
        assert now["retention.ms"].source != "topic"
        assert now["segment.bytes"][:2] == ("2097152", "topic")
        assert now["cleanup.policy"][:2] == ("compact", "topic")


@EACH_ADMIN
@pytest.mark.anyio
async def test_changes_follow_the_controller_and_name_missing_rights(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], topic: str
) -> None:
    async with admin_class(**options) as admin:
        cluster.fail("CreateTopics", ErrorCode.NOT_CONTROLLER, times=2)
        (await admin.create_topics([topic])).raise_errors()
        cluster.fail("DeleteTopics", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        error = (await admin.delete_topics(topic)).errors[topic]
        assert isinstance(error, TopicAuthorizationFailedError)
        assert (list(error.topics), error.operation) == ([topic], "DELETE")
        assert topic in cluster.topics


@EACH_ADMIN
@pytest.mark.anyio
async def test_arguments_are_checked(admin_class: Any, options: dict[str, Any]) -> None:
    async with admin_class(**options) as admin:
        with pytest.raises(ValueError, match="the number of partitions of t must be at least 1"):
            await admin.create_topics({"t": 0})
        with pytest.raises(TypeError, match="the number of partitions of t must be an int"):
            await admin.create_partitions({"t": "3"})
        with pytest.raises(ValueError, match="the type must be topic, broker or group"):
            await admin.describe_configs([ConfigResource("user", "alice")])  # type: ignore[arg-type]
