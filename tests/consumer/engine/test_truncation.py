"""Unclean elections that remove read records: poll() raises, without a skip or a reset."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import OffsetAndMetadata, TopicPartition
from kohort.errors import ErrorCode, KafkaError, LogTruncationError
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

T0, T1 = (TopicPartition("t", number) for number in range(2))


async def truncated(consumer: MemoryConsumer) -> LogTruncationError:
    """Poll until the truncation is raised. Return the error."""
    with pytest.raises(LogTruncationError) as caught:
        await values(consumer, 100)
    return caught.value


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("then", [0, 1, 5])
def test_what_was_cut_off_is_told_and_read_after_a_seek(policy: str, then: int) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, group_id=None, auto_offset_reset=policy) as consumer:
                consumer.assign([T0, T1])
                consumer.seek(T0, 0)
                consumer.seek(T1, 0)
                cluster.produce("t", ["a", "b"], partition=0)
                follower = 3 - cluster.leader("t", 0)
                cluster.lag(T0, follower)
                cluster.produce("t", ["c", "d"], partition=0)
                assert await values(consumer, 4) == [b"a", b"b", b"c", b"d"]
                cluster.move_leader("t", 0, to=follower)
                new = [f"new {number}" for number in range(then)]
                if new:
                    cluster.produce("t", new, partition=0)
                error = await truncated(consumer)
                assert (error.topic_partition, error.offset) == (T0, 4)
                assert (error.diverging_offset, error.diverging_epoch) == (2, 0)
                assert error.next_offset == 2
                assert "seek(" in str(error)
                assert str(error) in str(consumer.explain())
                # The error stays, and the other partition is read.
                cluster.produce("t", ["else"], partition=1)
                assert await values(consumer, 1) == [b"else"]
                assert str(await truncated(consumer)) == str(error)
                assert await consumer.position(T0) == 4
                consumer.seek(T0, error.diverging_offset or 0)
                cluster.produce("t", ["last"], partition=0)
                assert await values(consumer, then + 1) == [*map(str.encode, new), b"last"]

    run_virtual(main)


@pytest.mark.parametrize("policy", ["skip", "pause"])
def test_no_policy_passes_over_it(policy: str) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", on_error=policy) as consumer:
                follower = 3 - cluster.leader("t", 0)
                cluster.produce("t", ["a"])
                cluster.lag(T0, follower)
                cluster.produce("t", ["b"])
                assert await values(consumer, 2) == [b"a", b"b"]
                cluster.move_leader("t", 0, to=follower)
                cluster.produce("t", ["c", "d", "e"])
                for _ in range(3):
                    error = await truncated(consumer)
                    assert (error.offset, error.diverging_offset) == (2, 1)
                    assert not consumer.paused()
                consumer.seek(T0, 1)
                assert await values(consumer, 3) == [b"c", b"d", b"e"]

    run_virtual(main)


@pytest.mark.parametrize("then", [("x",), ("x", "y", "z")])
def test_a_committed_offset_is_checked_before_it_is_read_on_from(then: tuple[str, ...]) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            follower = 3 - cluster.leader("t", 0)
            cluster.lag(T0, follower)
            cluster.produce("t", ["b", "c"])
            async with MemoryConsumer(cluster, "t") as consumer:
                await values(consumer, 3)
            assert cluster.committed("g")[T0] == OffsetAndMetadata(3, "", 0)
            cluster.move_leader("t", 0, to=follower)
            cluster.produce("t", then)
            async with MemoryConsumer(cluster, "t") as consumer:
                error = await truncated(consumer)
                assert (error.offset, error.diverging_offset) == (3, 1)
                consumer.seek(T0, 1)
                assert await values(consumer, len(then)) == [*map(str.encode, then)]

    run_virtual(main)


def test_a_clean_election_asks_once_and_nothing_is_told() -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                for moves in range(5):
                    cluster.produce("t", [str(moves)])
                    assert await values(consumer, 1) == [b"%d" % moves]
                    assert asked(cluster) == moves
                    cluster.move_leader("t")
                await consumer.poll(timeout_ms=5_000)
                assert asked(cluster) == 5

    run_virtual(main)


def asked(cluster: MemoryCluster) -> int:
    return [each.api for each in cluster.requests].count("OffsetForLeaderEpoch")


@pytest.mark.parametrize("position", ["earliest", "latest", "sought"])
def test_a_position_that_was_just_looked_up_is_not_asked_about(position: str) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            cluster.move_leader("t")
            more: dict[str, Any] = {"auto_offset_reset": position}
            async with MemoryConsumer(
                cluster, group_id=None, **(more if position != "sought" else {})
            ) as consumer:
                consumer.assign([T0])
                if position == "sought":
                    consumer.seek(T0, 1)
                assert await consumer.position(T0) == (0 if position == "earliest" else 1)
                await consumer.poll(timeout_ms=1_000)
                cluster.produce("t", ["b"])
                assert (await values(consumer, 1))[-1] == b"b"
            assert asked(cluster) == 0

    run_virtual(main)


@pytest.mark.parametrize(
    "code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH", "REQUEST_TIMED_OUT"]
)
def test_a_check_that_fails_is_made_again_and_resets_nothing(code: str) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                cluster.produce("t", ["a", "b"])
                await values(consumer, 2)
                with cluster.fail("OffsetForLeaderEpoch", ErrorCode[code], times=6) as fault:
                    cluster.move_leader("t")
                    cluster.produce("t", ["c"])
                    await consumer.poll(timeout_ms=300)
                    assert 1 <= fault.hits < 6
                    assert "t-0" in str(consumer.explain().reasons)
                    assert await values(consumer, 1) == [b"c"]
                    assert fault.hits == 6

    run_virtual(main)


def test_unauthorized_validation_raises_and_goes_on_when_granted() -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                cluster.produce("t", ["a"])
                await values(consumer, 1)
                cluster.move_leader("t")
                cluster.produce("t", ["b"])
                with cluster.fail("OffsetForLeaderEpoch", ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                    with pytest.raises(KafkaError, match="validating the position of t-0"):
                        await values(consumer, 1)
                assert await values(consumer, 1) == [b"b"]

    run_virtual(main)


FORMS: dict[str, Any] = {
    "int": lambda offset: offset,
    "tuple": lambda offset: (offset, "text"),
    "no epoch": lambda offset: OffsetAndMetadata(offset),
    "no epoch, with metadata": lambda offset: OffsetAndMetadata(offset, "text"),
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("way", ["poll", "iteration", "columns"])
@pytest.mark.parametrize("form", FORMS)
def test_commit_adds_epoch_of_record_before_offset(form: str, way: str, protocol: str) -> None:
    """Four records, and the leader changes twice between them."""

    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            options: dict[str, Any] = {
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "group_protocol": protocol,
            }
            for value in "abcd":
                cluster.produce("t", [value])
                if value in "ac":
                    cluster.move_leader("t", to=3 - cluster.leader("t"))
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                await read_four(consumer, way)
                found = {}
                for offset in (4, 3, 2, 1):
                    await consumer.commit({T0: FORMS[form](offset)})
                    found[offset] = cluster.committed("g")[T0].leader_epoch
                epochs = {4: 2, 3: 1, 2: 1, 1: 0}
                if way == "columns":  # one table shows no epochs, so its last one stands for all
                    assert found == dict.fromkeys(epochs, 2)
                else:
                    assert found == epochs
                await consumer.commit({T0: 5})  # a record that this consumer has not read
                assert cluster.committed("g")[T0].leader_epoch == -1
                await consumer.commit({T0: OffsetAndMetadata(3, "", 0)})
                assert cluster.committed("g")[T0].leader_epoch == 0

    run_virtual(main)


async def read_four(consumer: MemoryConsumer, way: str) -> None:
    if way == "poll":
        assert await values(consumer, 4) == [b"a", b"b", b"c", b"d"]
    elif way == "columns":
        rows = 0
        while rows < 4:
            rows += sum(map(len, await consumer.poll_batches(timeout_ms=1000)))
    else:
        assert [(await anext(consumer)).value for _ in range(4)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("lost", ["d", "de"])
def test_truncation_is_raised_after_commit_by_number(lost: str) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            options: dict[str, Any] = {
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
            }
            follower = 3 - cluster.leader("t")
            cluster.produce("t", ["a", "b", "c"])
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                await values(consumer, 3)
                cluster.lag(T0, follower)
                cluster.produce("t", list(lost))
                await values(consumer, len(lost))
                await consumer.commit({T0: 3 + len(lost)})
            cluster.move_leader("t", to=follower)
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                error = await truncated(consumer)
                assert (error.offset, error.diverging_offset) == (3 + len(lost), 3)

    run_virtual(main)


def test_commit_adds_epoch_of_log_end_to_unread_offsets() -> None:
    """As a program does whose other processes read the records."""

    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            cluster.move_leader("t")
            cluster.produce("t", ["c"])

            async def epochs(*offsets: int) -> list[int]:
                found = []
                for offset in offsets:
                    await consumer.commit({T0: offset})
                    found.append(cluster.committed("g")[T0].leader_epoch)
                return found

            async with MemoryConsumer(cluster, "t", enable_auto_commit=False) as consumer:
                await poll_for(consumer, consumer.assignment)
                consumer.pause(T0)
                consumer.seek(T0, 0)
                assert await epochs(2, 3) == [-1, -1]
                assert await consumer.end_offsets([T0]) == {T0: 3}
                consumer.seek(T0, 0)
                assert await epochs(2, 3, 4) == [1, 1, -1]
                cluster.delete_topic("t")
                cluster.create_topic("t", 1)
                cluster.produce("t", ["new"])
                await consumer.topic_ids(["t"])
                consumer.seek(T0, 0)
                assert await epochs(1) == [-1]  # it was the end of another topic
                assert await consumer.end_offsets([T0]) == {T0: 1}
                assert await epochs(1) == [0]

    run_virtual(main)
