"""Share groups by admin clients: members, start offsets, lag, and resets with an undo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, ShareConsumer, TopicPartition
from kohort.admin import ConfigResource, ResetPlan
from kohort.errors import (
    ErrorCode,
    GroupHasMembersError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    OffsetsChangedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kohort.protocol import ApiKey
from kohort.testing import Cluster
from tests.admin.test_old_brokers import serve
from tests.support.awaited import EACH_ADMIN

JOBS = TopicPartition("jobs", 0)
KAFKA_3_9 = dict.fromkeys(
    (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )
)
"""APIs that older brokers do not serve."""
CONFIGS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"jobs": 1}, configs=CONFIGS) as running:
        running.produce("jobs", ["1", "2", "3", "4"])
        yield running


def worker(cluster: Cluster) -> ShareConsumer:
    return ShareConsumer(
        "jobs",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="workers",
        client_id="worker-1",
        start="earliest",
    )


def work(cluster: Cluster) -> list[bytes | None]:
    """Accept what a new member gets with its first records."""
    with worker(cluster) as consumer:
        found = consumer.poll(timeout_ms=60_000)
        assert consumer.commit() == {}
        return [record.value for records in found.values() for record in records]


@EACH_ADMIN
@pytest.mark.anyio
async def test_start_and_members_of_a_share_group_are_described(
    admin_class: Any, cluster: Cluster
) -> None:
    async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with worker(cluster) as consumer:
            assert consumer.poll(timeout_ms=60_000)
            described = (await admin.describe_groups("workers"))["workers"]
            [member] = described.members
            assert (described.type, described.state) == ("share", "Stable")
            assert (member.client_id, member.partitions) == ("worker-1", (JOBS,))
            assert described.owners() == {}
            lag = (await admin.group_lag("workers"))["workers"]
            assert lag.records is lag.partitions[JOBS].records is None
            assert lag.partitions[JOBS].reason == "no member has acknowledged a record yet"
            with pytest.raises(GroupHasMembersError):
                await admin.reset_group_offsets("workers", "latest")
            refused = await admin.alter_share_group_offsets("workers", {JOBS: 1})
            assert isinstance(refused.errors[JOBS], NonEmptyGroupError)
            consumer.commit()
        lag = (await admin.group_lag("workers"))["workers"]
        assert (lag.records, lag.seconds) == (0, 0.0)


@EACH_ADMIN
@pytest.mark.anyio
async def test_reset_of_a_share_group_delivers_again_and_has_an_undo(
    admin_class: Any, cluster: Cluster
) -> None:
    assert work(cluster) == [b"1", b"2", b"3", b"4"]
    async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
        plan = await admin.reset_group_offsets("workers", 2, plan=True)
        before = (await admin.list_share_group_offsets("workers"))["workers"][JOBS]
        done = await admin.reset_group_offsets("workers", plan)
        assert (await admin.list_share_group_offsets("workers"))["workers"][JOBS].start == 2
        await admin.reset_group_offsets("workers", done.undo)
        after = (await admin.list_share_group_offsets("workers"))["workers"][JOBS]
        assert after.start == before.start
        await admin.reset_group_offsets("workers", plan)
    assert work(cluster) == [b"3", b"4"]


@EACH_ADMIN
@pytest.mark.anyio
async def test_nonsense_is_refused_before_the_brokers_take_it(
    admin_class: Any, cluster: Cluster
) -> None:
    absent = TopicPartition("jobs", 7)
    async with admin_class(
        bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10
    ) as admin:
        results = await admin.alter_share_group_offsets("workers", {JOBS: 5, absent: 0})
        assert isinstance(results.errors[JOBS], OffsetOutOfRangeError)
        assert isinstance(results.errors[absent], UnknownTopicOrPartitionError)
        assert await admin.list_groups() == ()
        with pytest.raises(ValueError, match="start"):
            await admin.alter_share_group_offsets("workers", {JOBS: -5})


@EACH_ADMIN
@pytest.mark.anyio
async def test_deleted_offsets_make_a_share_group_begin_again(
    admin_class: Any, cluster: Cluster
) -> None:
    work(cluster)
    async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (await admin.delete_share_group_offsets("workers", "jobs")).raise_errors()
        assert dict((await admin.list_share_group_offsets("workers"))["workers"]) == {}
        (await admin.alter_share_group_offsets("workers", {JOBS: None})).raise_errors()
        found = (await admin.list_share_group_offsets("workers"))["workers"]
        assert found[JOBS].start is None
    assert work(cluster) == [b"1", b"2", b"3", b"4"]


@EACH_ADMIN
@pytest.mark.anyio
async def test_start_offsets_of_a_consumer_group_are_refused_by_its_type(
    admin_class: Any, cluster: Cluster
) -> None:
    with KafkaConsumer(
        "jobs",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="old",
        auto_offset_reset="earliest",
    ) as old:
        next(old)
        old.commit()
    async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
        results = await admin.alter_share_group_offsets("old", {JOBS: 1})
        assert "group 'old' is of the type c" in str(results.errors[JOBS])
        (error,) = (await admin.delete_share_group_offsets("old", "jobs")).errors.values()
        assert str(error) == "group 'old' does not exist, or is of another type"
        cluster.fail("ListGroups", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
        results = await admin.alter_share_group_offsets("old", {JOBS: 1})
        assert isinstance(results.errors[JOBS], GroupIdNotFoundError)


@EACH_ADMIN
@pytest.mark.anyio
@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.cases(2)
async def test_missing_share_groups_are_named_with_the_version(
    admin_class: Any, is_old: bool
) -> None:
    with Cluster(topics={"jobs": 1}, share_version=0) as cluster:
        if is_old:
            serve(cluster, KAFKA_3_9)
        async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for results in (
                await admin.list_share_group_offsets("workers"),
                await admin.alter_share_group_offsets("workers", {JOBS: 0}),
                await admin.delete_share_group_offsets("workers", "jobs"),
            ):
                (error,) = results.errors.values()
                assert isinstance(error, UnsupportedVersionError)
                assert "the cluster has no share groups. They need Kafka 4.2" in str(error)


@pytest.mark.parametrize("start", [None, "earliest"])
@pytest.mark.cases(2)
def test_share_consumer_names_the_version_that_it_needs(start: Any) -> None:
    def refused(call: Any) -> Any:
        response = call.error(ErrorCode.INVALID_REQUEST)
        for result in response.results:
            result.error_message = "Unexpected resource type GROUP"
        return response

    with Cluster(topics={"jobs": 1}, share_version=0) as cluster:
        serve(cluster, KAFKA_3_9)
        cluster.on("DescribeConfigs", refused)
        with ShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap_servers, group_id="w", start=start
        ) as consumer:
            with pytest.raises(UnsupportedVersionError, match=r"no share groups.*Kafka 4\.2"):
                consumer.poll(timeout_ms=60_000)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            group = ConfigResource("group", "w")
            error = admin.describe_configs([group]).errors[group]
            assert "no settings of groups. They need Kafka 4.0" in str(error)
            assert str(error).endswith("The broker's message is: Unexpected resource type GROUP")


@EACH_ADMIN
@pytest.mark.anyio
async def test_undo_of_a_share_group_that_was_deleted_makes_a_share_group(
    admin_class: Any, cluster: Cluster
) -> None:
    work(cluster)
    async with admin_class(bootstrap_servers=cluster.bootstrap_servers) as admin:
        done = await admin.reset_group_offsets("workers", 2)
        (await admin.delete_groups("workers")).raise_errors()
        again = ResetPlan.from_json(done.to_json())
        with pytest.raises(OffsetsChangedError):
            await admin.reset_group_offsets("workers", again)
        plan = await admin.reset_group_offsets("workers", 1, topics="jobs", new_type="share")
        assert plan.type == "share"
        (await admin.delete_groups("workers")).raise_errors()
        await admin.reset_group_offsets("workers", plan)
        assert (await admin.list_share_group_offsets("workers"))["workers"][JOBS].start == 1
        with pytest.raises(ValueError, match="new_type"):
            await admin.reset_group_offsets("workers", 1, new_type="classic")
