"""The lag of a group in records and seconds, against models that know the log."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaAdminClient, TopicPartition
from kohort.admin import MemberDescription, PartitionLag
from kohort.admin._lag import LogBounds, OldestRecord, next_unread, partition_lag, stuck_reason
from kohort.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError
from kohort.protocol.messages import DeleteRecordsRequest
from kohort.records import CREATE_TIME, LOG_APPEND_TIME
from kohort.testing import MemoryCluster, ProducerRecord
from tests.consumer.virtual import MemoryConsumer
from tests.support.async_producer import AsyncProducer
from tests.support.virtual import run_virtual

NOW = 1_000.0
OWNER = MemberDescription("one", None, "worker-1", "host", ())
T0 = TopicPartition("t", 0)


def lag(
    committed: int | None, *, at_ms: int | None = None, owned: bool = True, **more: Any
) -> PartitionLag:
    """Return the lag in a log of the offsets 10 to 99, whose offset 90 opens a transaction."""
    oldest = None if at_ms is None else OldestRecord(at_ms, more.pop("kind", CREATE_TIME))
    owner = OWNER if owned else None
    return partition_lag(committed, LogBounds(10, 100, 90), oldest, owner, NOW, **more)


def test_lag_is_the_age_of_the_oldest_record_that_is_not_done() -> None:
    found = lag(60, at_ms=940_000)
    assert (found.records, found.seconds, found.timestamp) == (40, 60.0, 940_000)
    assert (found.timestamp_type, found.flags) == ("CreateTime", ())
    assert lag(60, at_ms=940_000, kind=LOG_APPEND_TIME).timestamp_type == "LogAppendTime"


@pytest.mark.parametrize(
    ("found", "records", "seconds", "flags"),
    [
        (lag(100), 0, 0.0, ()),
        (lag(120), 0, 0.0, ()),
        (lag(60), 40, 0.0, ()),  # holes and control batches alone
        (lag(60, at_ms=-1), 40, None, ()),  # format 0 has no timestamps
        (lag(60, at_ms=1_500_000), 40, 0.0, ("future",)),
        (lag(5, at_ms=900_000), 95, 100.0, ("offsets-lost",)),
        (lag(None), None, None, ()),
        (lag(90, read_committed=True), 0, 0.0, ()),
        (lag(80, at_ms=940_000, read_committed=True), 10, 60.0, ()),
    ],
)
@pytest.mark.cases(9)
def test_lag_is_honest_about_the_unknown(
    found: PartitionLag, records: int | None, seconds: float | None, flags: tuple[str, ...]
) -> None:
    assert (found.records, found.seconds, found.flags) == (records, seconds, flags)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (lag(100), "at the end"),
        (lag(100, owned=False), "at the end"),
        (lag(60, owned=False), "no owner"),
        (lag(60, owned=False, has_members=False), "no owner: the group has no members"),
        (lag(None), "the owner has committed nothing"),
        (lag(None, owned=False), "no owner"),
        (lag(5), "offsets lost: the log starts at 10"),
        (lag(90), "a transaction is open from offset 90 on"),
        (lag(95), "a transaction is open from offset 90 on"),
        (lag(60), "behind"),
    ],
)
@pytest.mark.cases(10)
def test_reason_says_why_a_partition_does_not_move(found: PartitionLag, reason: str) -> None:
    assert found.reason == reason


def test_second_look_tells_a_stuck_owner_from_a_slow_one() -> None:
    before = lag(60)
    assert stuck_reason(before, lag(60), 5) == "the owner has not committed for 5 s"
    assert stuck_reason(before, lag(61), 5) == "behind: the owner moves"
    assert stuck_reason(before, lag(100), 5) == "at the end"
    assert stuck_reason(None, lag(60), 5) == "behind"
    other = lag(60)._replace(owner=OWNER._replace(member_id="two"))
    assert stuck_reason(before, other, 5) == "behind: the owner changed"


def test_next_unread_starts_in_the_log() -> None:
    bounds = LogBounds(10, 100, 90)
    assert [next_unread(at, bounds, 100) for at in (None, 5, 10, 99, 100, 120)] == [
        None,
        10,
        10,
        99,
        None,
        None,
    ]


class Model:
    """A log as the test wrote it: the timestamp of each offset, or None for a control record."""

    def __init__(self) -> None:
        self.times: list[int | None] = []
        self.start = 0
        self.stable = 0
        self.committed: int | None = None

    def expected(self, now: float, *, read_committed: bool) -> tuple[int, float] | None:
        if self.committed is None:
            return None
        end = self.stable if read_committed else len(self.times)
        position = max(self.committed, self.start)
        ages = [now - at / 1000 for at in self.times[position:end] if at is not None]
        return max(0, end - self.committed), max(0.0, ages[0]) if ages else 0.0


async def simulate(seed: int) -> None:
    """Write, commit, delete and let time pass at random. Compare the lag after each step."""
    rng = random.Random(seed)
    models = {TopicPartition("t", number): Model() for number in range(3)}
    async with MemoryCluster(topics={"t": 3}, seed=seed) as cluster:
        async with AsyncKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            connect=cluster.connect,
            wall_clock=cluster.wall_clock,
            rng=random.Random(seed),
        ) as admin:
            producer = AsyncProducer(admin, "tx")
            await producer.init()
            for _ in range(25):
                tp = rng.choice(list(models))
                model = models[tp]
                await step(rng, cluster, admin, producer, tp, model)
                if all(each.committed is None for each in models.values()):
                    continue
                for level in ("read_uncommitted", "read_committed"):
                    found = (await admin.group_lag("g", level))["g"].partitions.raise_errors()
                    now = cluster.wall_clock()
                    for place, at in found.items():
                        known = models[place]
                        expected = known.expected(now, read_committed=level == "read_committed")
                        assert (at.records, at.seconds) == expected, (seed, place, level)


async def step(
    rng: random.Random,
    cluster: MemoryCluster,
    admin: AsyncKafkaAdminClient,
    producer: AsyncProducer,
    tp: TopicPartition,
    model: Model,
) -> None:
    now_ms = int(cluster.wall_clock() * 1000)
    action = rng.choice(["write", "write", "commit", "commit", "transaction", "delete", "wait"])
    if action == "write":
        times = [now_ms + rng.randrange(-600_000, 60_000) for _ in range(rng.randrange(1, 6))]
        cluster.produce(
            "t",
            [ProducerRecord(value="x", timestamp=at, partition=tp.partition) for at in times],
        )
        model.times += times
        model.stable = len(model.times)
    elif action == "transaction":
        at = now_ms - rng.randrange(60_000)
        await producer.write(b"x", b"y", at_ms=at, partition=tp.partition)
        await producer.commit()
        model.times += [at, at, None]
        model.stable = len(model.times)
    elif action == "commit":
        model.committed = rng.randrange(len(model.times) + 1)
        (await admin.alter_group_offsets("g", {tp: model.committed})).raise_errors()
    elif action == "delete" and model.times:
        model.start = rng.randrange(model.start, len(model.times) + 1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(
            name="t",
            partitions=[
                DeleteRecordsRequest.DeleteRecordsPartition(
                    partition_index=tp.partition, offset=model.start
                )
            ],
        )
        cluster_client = admin._driver.engine.cluster
        leader = (await cluster_client.fetch_topics({"t"})).leader(tp)
        assert leader is not None
        response = await cluster_client.request(
            DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), node=leader.node
        )
        assert response.topics[0].partitions[0].error_code == 0
    else:
        await anyio.sleep(rng.uniform(0, 3600))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.cases(4)
def test_lag_equals_that_of_a_simulation_that_knows(seed: int) -> None:
    run_virtual(simulate, seed)


def test_lag_names_owner_and_open_transaction() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [ProducerRecord(value="x", partition=0)] * 3)
            async with (
                MemoryConsumer(cluster, "t", client_id="worker-1") as consumer,
                AsyncKafkaAdminClient(
                    bootstrap_servers=cluster.bootstrap_servers,
                    connect=cluster.connect,
                    wall_clock=cluster.wall_clock,
                ) as admin,
            ):
                await consumer.commit({T0: 3})
                producer = AsyncProducer(admin, "tx")
                await producer.init()
                await producer.write(b"x", at_ms=int(cluster.wall_clock() * 1000))
                found = (await admin.group_lag("g"))["g"]
                assert found.partitions[T0].reason == "a transaction is open from offset 3 on"
                owner = found.partitions[T0].owner
                assert owner is not None and owner.client_id == "worker-1"
                other = found.partitions[TopicPartition("t", 1)]
                assert other.reason == "the owner has committed nothing"
                assert (found.records, found.seconds) == (1, 0.0)
                await producer.end(committed=False)
                committed = (await admin.group_lag("g", "read_committed"))["g"]
                # Aborted records and the marker count as records, but none of them is waited for.
                assert committed.partitions[T0][3:5] == (2, 0.0)

    run_virtual(main)


def test_lag_has_an_error_for_each_group_and_partition() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "gone": 1}) as cluster:
            async with AsyncKafkaAdminClient(
                bootstrap_servers=cluster.bootstrap_servers, connect=cluster.connect
            ) as admin:
                gone = TopicPartition("gone", 0)
                await admin.alter_group_offsets("g", {T0: 0, gone: 0})
                found = await admin.group_lag(["g", "absent"])
                assert list(found) == ["g"]
                assert isinstance(found.errors["absent"], GroupIdNotFoundError)
                assert set(found["g"].partitions) == {T0, gone}
                cluster.on("ListOffsets", without_gone)
                partitions = (await admin.group_lag("g"))["g"].partitions
                assert list(partitions) == [T0]
                assert isinstance(partitions.errors[gone], UnknownTopicOrPartitionError)

    run_virtual(main)


async def without_gone(call: Any) -> Any:
    """Respond as if the topic "gone" did not exist."""
    response = await call.proceed()
    for topic in response.topics:
        if topic.name == "gone":
            topic.partitions[0].error_code = UnknownTopicOrPartitionError.code
    return response


def test_absent_partition_is_an_error_long_before_the_timeout() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            servers = cluster.bootstrap_servers
            async with AsyncKafkaAdminClient(
                bootstrap_servers=servers, connect=cluster.connect
            ) as admin:
                began, absent = anyio.current_time(), TopicPartition("t", 9)
                found = await admin.list_partition_offsets({T0: -1, absent: -1}, timeout_ms=600_000)
                assert anyio.current_time() - began < 10
                at = found[T0]
                assert at is not None
                assert at.offset == 1
                error = found.errors[absent]
                assert isinstance(error, UnknownTopicOrPartitionError)
                assert "the look-up of offsets failed for t-9" in str(error)

    run_virtual(main)
