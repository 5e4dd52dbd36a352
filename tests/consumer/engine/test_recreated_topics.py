"""Recreated topics: offsets and positions of the old topic do not apply to the new one.

A member of a consumer group gets a recreated topic by another assignment. That drops buffered
records of the old topic and ends a pause, so some tests are about classic members only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import CommitFailedError, TopicRecreatedError
from kohort.protocol import ApiKey, Response
from kohort.testing import Call, MemoryCluster
from kohort.types import OffsetAndMetadata
from tests.consumer.both_apis import Driven, Stage, perform
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    ClassicConsumer,
    MemoryConsumer,
    poll_for,
    values,
)
from tests.support.virtual import run_virtual

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD = [b"old%d" % number for number in range(100)]
NEW = [b"new%d" % number for number in range(200)]
APIS = pytest.mark.parametrize("api", ["sync", "async"])


def assign(consumer: Any) -> None:
    consumer.assign([T0])


def subscribe(consumer: Any) -> None:
    consumer.subscribe(["t"])


WAYS = pytest.mark.parametrize("way", [assign, subscribe])


def recreate(cluster: Any, partitions: int = 1, new: list[bytes] = NEW) -> None:
    cluster.delete_topic("t")
    cluster.create_topic("t", partitions)
    cluster.produce("t", new, partition=0)


async def by_name(call: Call) -> Response | None:
    """Respond as a broker before 4.1, which identifies the topics of offsets by name."""
    response: Any = await call.proceed()
    for each in response.api_keys:
        if each.api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
            each.max_version = 9
    return cast(Response, response)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    return [text for text in texts if "created again" in text]


@APIS
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_recreated_topic_is_read_from_its_beginning(
    api: str, reset: str, by_hand: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(stage: Stage) -> None:
        stage.cluster.produce("t", OLD, partition=0)
        topics = [] if by_hand else ["t"]
        one = await stage.join(*(topics or ["u"]), auto_offset_reset=reset)
        if by_hand:
            await one.consumer.unsubscribe()
            one.consumer.assign([T0])
        await position(stage, one)
        one.consumer.seek(T0, 0)
        assert await read(stage, one, 100) == OLD
        one.consumer.pause(T0)
        recreate(stage.cluster)
        found = await one.poll()  # a member of a consumer group gets the partition again, unpaused
        found += await stage.until(lambda: T0 in one.consumer.assignment(), one)
        one.consumer.resume(T0)
        assert found + await read(stage, one, 200 - len(found)) == NEW
        assert await one.consumer.position(T0) == 200

    perform(api, script, {"t": 1, "u": 1})
    # The commit of the revocation may fail as well, with another warning.
    (text,) = [each for each in warnings(caplog) if not each.startswith("automatic commit")]
    assert text.startswith("topic t ")
    assert len(set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", text))) == 2


async def position(stage: Stage, member: Driven) -> None:
    await stage.until(lambda: member.consumer.positions(), member)


async def read(stage: Stage, member: Driven, count: int) -> list[bytes]:
    """Return the next values. Fail if they do not arrive."""
    found: list[bytes] = []

    def enough() -> bool:
        return len(found) >= count

    deadline = stage.now() + 5
    while not enough():
        assert stage.now() < deadline, f"{len(found)} came, the last is {found[-1:]}"
        found += await member.poll()
    return found


@APIS
@pytest.mark.parametrize("reset", ["none", "by_duration:PT1H"])
def test_recreated_topic_raises_until_a_seek_with_other_rules(api: str, reset: str) -> None:
    async def script(stage: Stage) -> None:
        one = await stage.join("u", auto_offset_reset=reset)
        await one.consumer.unsubscribe()
        one.consumer.assign([T0, U0])
        one.consumer.seek(T0, 0)
        one.consumer.seek(U0, 0)
        stage.cluster.produce("t", OLD, partition=0)
        assert await read(stage, one, 100) == OLD
        recreate(stage.cluster)
        error = await stage.error(TopicRecreatedError, one)
        again = await stage.error(TopicRecreatedError, one)
        assert (error.topic_partition, error.offset) == (T0, 100)
        assert error.old_topic_id != error.new_topic_id == again.new_topic_id
        stage.cluster.produce("u", ["other"])
        found: list[bytes] = []
        while not found:
            try:
                found = await one.poll()
            except TopicRecreatedError:
                pass
        assert found == [b"other"]
        one.consumer.seek(T0, 150)
        assert await read(stage, one, 50) == NEW[150:]

    perform(api, script, {"t": 1, "u": 1})


def on_virtual_time(
    script: Callable[[MemoryCluster], Awaitable[None]], partitions: int = 1, *, named: bool = False
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": partitions}, auto_create_topics=False) as cluster:
            if named:
                cluster.on("ApiVersions", by_name, keep=True)
            await script(cluster)

    run_virtual(main)


def committed(cluster: MemoryCluster) -> int | None:
    at = cluster.committed("g").get(T0)
    return None if at is None else at.offset


@pytest.mark.parametrize("way", [assign, subscribe])
def test_buffered_records_of_the_old_topic_come_first(way: Callable[[Any], None]) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        async with ClassicConsumer(cluster, max_poll_records=10) as one:
            way(one)
            assert await values(one, 10) == OLD[:10]
            recreate(cluster)
            await anyio.sleep(10)  # noticed without a poll
            assert one.positions() == {T0: 10}
            assert await values(one, 290) == OLD[10:] + NEW

    on_virtual_time(script)


def test_iteration_returns_buffered_records_before_new_topics() -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        async with ClassicConsumer(cluster, "t") as one:
            found = [(await anext(one)).value]
            recreate(cluster)
            await anyio.sleep(10)
            while len(found) < 300:
                found.append((await anext(one)).value)
            assert found == OLD + NEW

    on_virtual_time(script)


@EACH_PROTOCOL
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_topic_recreated_twice_is_read_from_the_last_beginning(
    reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with MemoryConsumer(cluster, auto_offset_reset=reset) as one:
            one.assign([T0])
            one.seek(T0, 0)
            cluster.produce("t", OLD, partition=0)
            assert await values(one, 100) == OLD
            recreate(cluster, new=[b"lost"])
            one.pause(T0)
            await anyio.sleep(400)
            recreate(cluster)
            await anyio.sleep(400)
            one.resume(T0)
            if reset == "none":
                (error,) = await poll_for_error(one)
                assert error.offset == 100
                one.seek(T0, 0)
            assert await values(one, 200) == NEW

    on_virtual_time(script)
    # An automatic commit of the old offset, which is refused, may notice the new topic first.
    commits = [text for text in warnings(caplog) if text.startswith("automatic commit failed")]
    assert len(commits) <= 1
    assert len(warnings(caplog)) == 2 + len(commits)


async def poll_for_error(consumer: MemoryConsumer) -> list[Any]:
    errors: list[Any] = []
    while not errors:
        errors = await poll_for(consumer, lambda: True)
        try:
            await consumer.poll(timeout_ms=100)
        except TopicRecreatedError as error:
            errors.append(error)
    return errors


@EACH_PROTOCOL
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("group_id", [None, "g"])
def test_recreated_topic_may_have_another_number_of_partitions(
    partitions: int, group_id: str | None
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        for partition in (0, 1):
            cluster.produce("t", OLD[:50], partition=partition)
        options: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 5000}
        async with MemoryConsumer(cluster, "t", group_id=group_id, **options) as one:
            await poll_for(one, lambda: len(one.positions()) == 2)
            recreate(cluster, partitions, NEW[:10])
            for partition in range(1, partitions):
                cluster.produce("t", NEW[:10], partition=partition)
            assert await values(one, 10 * partitions) == NEW[:10] * partitions
            assert one.positions() == dict.fromkeys(
                [TopicPartition("t", partition) for partition in range(partitions)], 10
            )

    on_virtual_time(script, partitions=2)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("way", [assign, subscribe])
def test_automatic_commits_of_the_old_topic_are_dropped(
    way: Callable[[Any], None], named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        async with ClassicConsumer(cluster, metadata_max_age_ms=1000) as one:
            way(one)
            assert await values(one, 100) == OLD
            await one.poll()
            one.pause(T0)
            recreate(cluster, new=NEW[:100])
            for _ in range(60):
                await anyio.sleep(0.5)
                await one.poll()  # lets automatic commits continue
            assert committed(cluster) is None
            one.resume(T0)
            assert await values(one, 100) == NEW[:100]
            await one.poll()
            await anyio.sleep(10)
            assert committed(cluster) == 100  # the same number, but of another topic

    on_virtual_time(script, named=named)
    assert not [text for text in caplog.messages if "commit failed" in text]


@EACH_PROTOCOL
@pytest.mark.parametrize("named", [False, True])
def test_commit_of_old_offsets_fails_until_the_position_moves(named: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        options: dict[str, Any] = {"enable_auto_commit": False, "metadata_max_age_ms": 1000}
        async with MemoryConsumer(cluster, "t", **options) as one:
            assert await values(one, 100) == OLD
            recreate(cluster)
            await anyio.sleep(10)
            with pytest.raises(CommitFailedError, match="created again") as caught:
                await one.commit({T0: OffsetAndMetadata(100)})
            assert dict(caught.value.offsets) == {T0: OffsetAndMetadata(100)}
            await one.commit()  # commits the positions, and the new topic has none yet
            assert committed(cluster) is None
            assert await values(one, 200) == NEW
            await one.commit({T0: OffsetAndMetadata(100)})
            assert committed(cluster) == 100

    on_virtual_time(script, named=named)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_recreation_is_logged_once_when_a_rebalance_follows(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        consumer = ClassicConsumer(cluster, "t", partition_assignment_strategy=strategy)
        async with consumer:
            assert await values(consumer, 100) == OLD
            await consumer.poll()
            recreate(cluster)
            await cluster.wait_until(lambda: warnings(caplog), 60)
            consumer.enforce_rebalance()
            await anyio.sleep(10)
            assert await values(consumer, 200) == NEW

    on_virtual_time(script)
    assert len(warnings(caplog)) == 1


@EACH_PROTOCOL
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_offset_of_the_old_topic_is_unused_after_a_rebalance(named: bool, reset: str) -> None:
    """Another client committed, by the topic's name, the offset that the consumer had committed."""

    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        async with MemoryConsumer(cluster, "t", auto_offset_reset="earliest") as one:
            assert await values(one, 100) == OLD
            await one.commit()
            await one.unsubscribe()
            await poll_for(one, lambda: not cluster.group("g").members)
            recreate(cluster)
            async with MemoryConsumer(cluster) as other:
                other.assign([T0])
                if named:
                    await other.commit({T0: OffsetAndMetadata(100)})
            one.subscribe(["t"])
            assert await values(one, 200) == NEW

    on_virtual_time(script, named=named)


@EACH_PROTOCOL
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_topic_recreated_while_unsubscribed_is_read_from_start(
    reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        async with MemoryConsumer(cluster, "t", auto_offset_reset=reset) as one:
            await poll_for(one, lambda: one.positions())
            await one.unsubscribe()
            recreate(cluster)
            one.subscribe(["t"])
            assert await values(one, 200) == NEW

    on_virtual_time(script)
    assert len(warnings(caplog)) == 1


def test_broker_that_names_the_old_id_again_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        old_ids: list[bytes] = []

        async def metadata(call: Call) -> Response | None:
            response: Any = await call.proceed()
            for topic in response.topics:
                if topic.name == "t" and any(topic.topic_id):
                    if bytes(topic.topic_id) not in old_ids:
                        old_ids.append(bytes(topic.topic_id))
                    elif len(old_ids) == 2:
                        topic.topic_id = old_ids[0]  # an outdated broker
            return cast(Response, response)

        cluster.on("Metadata", metadata, keep=True)
        cluster.produce("t", OLD, partition=0)
        async with ClassicConsumer(cluster, "t", metadata_max_age_ms=1000) as one:
            assert await values(one, 100) == OLD
            recreate(cluster)
            assert await values(one, 200) == NEW
            await poll_for(one, lambda: committed(cluster) == 200)
            cluster.produce("t", [b"more"], partition=0)
            assert await values(one, 1) == [b"more"]

    on_virtual_time(script)
    assert len(warnings(caplog)) == 1


@EACH_PROTOCOL
def test_pattern_reads_a_recreated_topic_from_its_beginning() -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", OLD, partition=0)
        options: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 1000}
        async with MemoryConsumer(cluster, **options) as one:
            one.subscribe(pattern="t.*")
            await poll_for(one, lambda: one.positions())
            cluster.delete_topic("t")
            await poll_for(one, lambda: not one.assignment())
            cluster.create_topic("t")
            cluster.produce("t", NEW, partition=0)
            assert await values(one, 200) == NEW

    on_virtual_time(script)


@EACH_PROTOCOL
def test_offset_of_the_new_topic_is_used_when_metadata_is_late() -> None:
    """The partition is assigned while this consumer knows the old id, and others read the new."""

    async def script(cluster: MemoryCluster) -> None:
        old: list[Any] = []

        async def late(call: Call) -> Response | None:
            response: Any = await call.proceed()
            for index, topic in enumerate(response.topics):
                if topic.name == "t" and call.client_id == "late":
                    old[:1] = old[:1] or [topic]
                    response.topics[index] = old[0]
            return cast(Response, response)

        rule = cluster.on("Metadata", late, keep=True)
        options: dict[str, Any] = {"client_id": "late", "metadata_max_age_ms": 1000}
        async with MemoryConsumer(cluster, **options) as one:
            one.assign([TopicPartition("t", 1)])
            await poll_for(one, one.positions)
            recreate(cluster, 2)
            async with MemoryConsumer(cluster, seed=6) as other:
                other.assign([T0])
                assert await values(other, 200) == NEW
            assert committed(cluster) == 200
            one.assign([T0])
            await poll_for(one, lambda: T0 in one.positions())
            rule.stop()
            cluster.produce("t", [b"more"], partition=0)
            assert await values(one, 1) == [b"more"]

    on_virtual_time(script, partitions=2)
