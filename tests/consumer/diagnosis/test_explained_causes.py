"""The causes that explain() and the log name while nothing arrives, on a virtual clock."""

from __future__ import annotations

import logging

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetFetchResponse
from kohort.testing import Call, MemoryCluster
from tests.consumer.virtual import EACH_PROTOCOL, MemoryConsumer, poll_for
from tests.support.virtual import run_virtual


def _is_read(consumer: MemoryConsumer) -> bool:
    """True if the one record was read."""
    return consumer.lag().get(TopicPartition("t", 0)) == 0


@EACH_PROTOCOL
def test_failing_reads_of_committed_offsets_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.coordinator_client")

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"])
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"])
                with cluster.fail(
                    "OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None
                ):
                    for _ in range(20):
                        await consumer.poll(timeout_ms=1_000)
                    reasons = consumer.explain().reasons
                assert any(
                    each.startswith("the committed offsets cannot be read: ")
                    and "COORDINATOR_LOAD_IN_PROGRESS" in each
                    for each in reasons
                ), reasons
                await poll_for(consumer, lambda: _is_read(consumer))
                assert not any("cannot be read" in each for each in consumer.explain().reasons)

    run_virtual(main)
    lines = [each for each in caplog.messages if "read of committed offsets of t 0-1" in each]
    assert lines[0].startswith("[g] ")
    assert "the coordinator returned COORDINATOR_LOAD_IN_PROGRESS; trying again" in lines[0]
    assert 2 <= len(lines) <= 4  # at once, after 5 s and after 15 s


async def _unknown_offsets(call: Call) -> OffsetFetchResponse:
    """Respond with UNKNOWN_TOPIC_OR_PARTITION for each partition."""
    response = await call.proceed()
    assert isinstance(response, OffsetFetchResponse)
    for group in response.groups:
        for topic in group.topics:
            for at in topic.partitions:
                at.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response


@EACH_PROTOCOL
def test_unknown_topic_of_committed_offsets_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.consumer")

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", [b"x"])
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"])
                with cluster.on("OffsetFetch", _unknown_offsets):
                    named = 0
                    for _ in range(60):
                        await consumer.poll(timeout_ms=1_000)
                        named += any(
                            each.startswith("the committed offsets cannot be read: ")
                            and "UNKNOWN_TOPIC_OR_PARTITION" in each
                            for each in consumer.explain().reasons
                        )
                    assert named >= 58, "also between two series of attempts"
                await poll_for(consumer, lambda: _is_read(consumer))
                assert not any("cannot be read" in each for each in consumer.explain().reasons)

    run_virtual(main)
    lines = [each for each in caplog.messages if "reading the committed offsets failed" in each]
    assert 1 <= len(lines) <= 5  # at once, after 5 s, 15 s and 35 s


@EACH_PROTOCOL
def test_failing_look_ups_of_first_positions_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.fetcher")

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", [b"x"])
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"])
                with cluster.fail("ListOffsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None):
                    for _ in range(20):
                        await consumer.poll(timeout_ms=1_000)
                    reasons = consumer.explain().reasons
                assert any(each.startswith("t-0: LeaderNotAvailableError: ") for each in reasons), (
                    reasons
                )
                await poll_for(consumer, lambda: _is_read(consumer))
                assert not any("LEADER_NOT" in each for each in consumer.explain().reasons)

    run_virtual(main)
    lines = [each for each in caplog.messages if "trying again" in each]
    assert "t-0" in lines[0]
    assert 2 <= len(lines) <= 4


def test_start_at_the_end_of_a_full_topic_is_explained() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"] * 10, partition=0)
            async with MemoryConsumer(cluster, "t", auto_offset_reset="latest") as consumer:
                for _ in range(3):
                    assert not await consumer.poll(timeout_ms=1_000)
                [end, start] = consumer.explain().reasons
                assert end == "read to the end: no new records were produced"
                assert "auto_offset_reset is 'latest'" in start
                assert "t-0 at 10." in start
                assert "t-1" not in start  # it has no records to leave out
                cluster.produce("t", [b"y"], partition=0)
                await consumer.poll(timeout_ms=1_000)
                await consumer.poll(timeout_ms=1_000)
                assert consumer.explain().reasons == (end,)

    run_virtual(main)


def test_seek_to_the_end_is_not_explained_as_a_rule() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", [b"x"] * 10)
            async with MemoryConsumer(cluster, "t") as consumer:
                await poll_for(consumer, consumer.assignment)
                consumer.seek_to_end()
                for _ in range(3):
                    await consumer.poll(timeout_ms=1_000)
                assert consumer.explain().reasons == (
                    "read to the end: no new records were produced",
                )

    run_virtual(main)


def test_unknown_figures_are_called_unknown() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_protocol="classic") as consumer:
                text = str(consumer.explain())
                assert "coordinator unknown, no assignor yet" in text
                consumer.subscribe(["t"])
                with cluster.fail("ListOffsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None):
                    await poll_for(consumer, consumer.assignment)
                    text = str(consumer.explain())
                assert "t-0: position unknown, committed unknown, end unknown, lag unknown" in text
                assert "now 1 partition; reason" in text

    run_virtual(main)


@pytest.mark.parametrize("group_id", ["g", None])
def test_topic_that_the_consumer_may_have_created_is_named(
    group_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.consumer")

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            async with MemoryConsumer(cluster, "ordres", group_id=group_id) as consumer:
                await poll_for(consumer, consumer.assignment)
                for _ in range(3):
                    await consumer.poll(timeout_ms=1_000)
                [_, cause] = consumer.explain().reasons
                assert cause.startswith("topic ordres has no records, and did not exist when")
                cluster.produce("ordres", [b"x"])
                await poll_for(consumer, lambda: not consumer.explain().reasons[1:])

    run_virtual(main)
    assert [each for each in caplog.messages if "did not exist" in each] == [
        "topic 'ordres' did not exist when it was requested first, and exists now. Brokers may "
        "have created it, because allow_auto_create_topics is True"
    ]
