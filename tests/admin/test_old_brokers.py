"""Admin clients with brokers of older versions, which the in-process cluster plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kohort import AsyncKafkaAdminClient, TopicPartition
from kohort.admin import NewTopic, OffsetSpec
from kohort.errors import GroupIdNotFoundError, UnsupportedVersionError
from kohort.protocol import ApiKey
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import ClassicConsumer
from tests.support.virtual import run_virtual

KAFKA_2_8 = {
    ApiKey.LIST_GROUPS: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 11,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CONSUMER_GROUP_DESCRIBE: None,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: None,
}
KAFKA_2_3 = {
    **KAFKA_2_8,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.DESCRIBE_GROUPS: 3,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.METADATA: 8,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_GROUPS: 1,
}
"""The newest version of each API, or None if there is none. Other APIs do not differ here."""
EACH = pytest.mark.parametrize(
    "versions", [pytest.param(KAFKA_2_8, id="2.8"), pytest.param(KAFKA_2_3, id="2.3")]
)
T0 = TopicPartition("t", 0)


def serve(cluster: Cluster | MemoryCluster, versions: Mapping[ApiKey, int | None]) -> None:
    """Let the brokers serve these versions at most."""

    async def older(call: Any) -> Any:
        response = await call.proceed()
        kept = []
        for each in response.api_keys:
            newest = versions.get(each.api_key, each.max_version)
            if newest is not None:
                each.max_version = newest
                kept.append(each)
        response.api_keys = kept
        return response

    cluster.on("ApiVersions", older)


@EACH
def test_groups_of_older_brokers(versions: dict[ApiKey, int | None]) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            serve(cluster, versions)
            cluster.produce("t", ["a", "b", "c", "d"])
            async with (
                ClassicConsumer(cluster, "t", client_id="worker-1") as consumer,
                AsyncKafkaAdminClient(
                    bootstrap_servers=cluster.bootstrap_servers,
                    connect=cluster.connect,
                    wall_clock=cluster.wall_clock,
                ) as admin,
            ):
                await consumer.commit({T0: 1})
                [listed] = await admin.list_groups(types_filter=["classic"])
                assert (listed.group_id, listed.type) == ("g", "classic")
                described = await admin.describe_groups(["g", "absent"])
                assert described["g"].owners()[T0].client_id == "worker-1"
                assert isinstance(described.errors["absent"], GroupIdNotFoundError)
                found = (await admin.group_lag("g"))["g"].partitions
                assert (found[T0].records, found[T0].seconds) == (1, 0.0)
                assert found[T0].reason == "behind"
                await consumer.close(autocommit=False)
                plan = await admin.reset_group_offsets("g", "latest")
                assert [step.after.offset for step in plan.steps if step.after] == [2]
                await admin.reset_group_offsets("g", plan.undo)
                offsets = (await admin.list_group_offsets("g"))["g"]
                assert {tp: at.offset for tp, at in offsets.items()} == {T0: 1}
                results = await admin.list_partition_offsets({T0: OffsetSpec.MAX_TIMESTAMP})
                assert isinstance(results.errors[T0], UnsupportedVersionError)
                assert list(await admin.delete_groups("g")) == ["g"]

    run_virtual(main)


@EACH
def test_topics_of_older_brokers(versions: dict[ApiKey, int | None]) -> None:
    async def main() -> None:
        async with MemoryCluster() as cluster:
            serve(cluster, versions)
            async with AsyncKafkaAdminClient(
                bootstrap_servers=cluster.bootstrap_servers, connect=cluster.connect
            ) as admin:
                (await admin.create_topics({"t": NewTopic(2, 1)})).raise_errors()
                defaults = await admin.create_topics(["u"])
                if versions is KAFKA_2_3:
                    assert isinstance(defaults.errors["u"], UnsupportedVersionError)
                assert len((await admin.describe_topics("t"))["t"].partitions) == 2
                assert dict(await admin.delete_topics("t")) == {"t": None}

    run_virtual(main)
