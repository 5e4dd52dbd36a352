"""Messages about unreachable brokers: what they name, and how often they are logged."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode, KafkaTimeoutError
from kohort.testing import Cluster, MemoryCluster
from kohort.transport import RepeatedLog, in_seconds
from tests.consumer.kit import poll_until
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.kafka_server import KafkaServer
from tests.support.virtual import run_virtual

UNREACHED = "127.0.0.2"
"""Address without a listener. Connections are refused immediately."""
PLACE = TopicPartition("t", 0)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of kohort."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_wrong_advertised_address_is_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster(advertised_host=UNREACHED, topics={"t": 1}) as cluster:
        port = cluster.bootstrap_servers.rpartition(":")[2]
        with KafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{port}", group_id="g") as consumer:
            for _ in range(4):
                consumer.poll(timeout_ms=300)
            with pytest.raises(KafkaTimeoutError) as raised:
                consumer.end_offsets([PLACE], timeout_ms=3_000)  # longer than the back-off
    assert "check that it runs, and its advertised.listeners" in str(raised.value)
    assert "within 3 s" in str(raised.value)
    (warning,) = warnings_of(caplog)
    assert f"{UNREACHED}:{port}" in warning
    assert "broker 1" in warning
    assert "advertised.listeners" in warning


@pytest.mark.anyio
async def test_an_async_lookup_names_the_advertised_address() -> None:
    with Cluster(advertised_host=UNREACHED, topics={"t": 1}) as cluster:
        port = cluster.bootstrap_servers.rpartition(":")[2]
        async with AsyncKafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{port}", request_timeout_ms=1_000
        ) as consumer:
            with pytest.raises(KafkaTimeoutError, match=r"advertised\.listeners"):
                await consumer.beginning_offsets([PLACE])


def test_reached_broker_is_not_reported_as_misadvertised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster(topics={"t": 1}) as cluster:
        with KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers) as consumer:
            poll_until(consumer, lambda: any(each.api == "Fetch" for each in cluster.requests))
            cluster.kill_broker(1)
            poll_until(consumer, lambda: warnings_of(caplog))
    assert not [warning for warning in warnings_of(caplog) if "advertised" in warning]


def test_equal_messages_get_rarer_while_a_broker_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    lines: Counter[str] = Counter()

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t") as consumer:
                await consumer.poll(timeout_ms=5_000)
                caplog.clear()
                cluster.kill_broker(1)
                with anyio.move_on_after(45):
                    while True:
                        await consumer.poll(timeout_ms=1_000)
                lines.update(r.getMessage().partition(" (")[0] for r in caplog.records)
                cluster.start_broker(1)

    run_virtual(main)
    assert max(lines.values()) <= 5, lines
    assert sum(lines.values()) < 25, lines


def test_many_failing_partitions_get_one_line_for_each_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    count = 20

    async def main() -> None:
        async with MemoryCluster(topics={"t": count}) as cluster:
            cluster.produce("t", ["a"] * count)
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                await values(consumer, count)
                caplog.clear()
                for error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE):
                    with cluster.fail("Fetch", error, times=None):
                        with anyio.move_on_after(40):
                            while True:
                                await consumer.poll(timeout_ms=1_000)
                cluster.produce("t", ["b"] * count)
                await values(consumer, count)
                with cluster.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1):
                    await consumer.poll(timeout_ms=1_000)

    run_virtual(main)
    lines = [r.getMessage() for r in caplog.records if r.name == "kohort.fetcher"]
    assert re.findall(r": ([A-Z_]+):.*; trying again", "\n".join(lines)) == [
        *["NOT_LEADER_OR_FOLLOWER"] * 4,  # after 0, 5, 15 and 35 s
        *["REPLICA_NOT_AVAILABLE"] * 4,
        "NOT_LEADER_OR_FOLLOWER",
    ]
    assert lines[1].startswith(f"fetching {count} partitions, t-")
    assert "times since the last line" in lines[1]


@pytest.mark.parametrize(
    ("count", "end"),
    [(1, "t-0 at 0"), (6, " and 1 other partition"), (300, " and 295 other partitions")],
)
def test_start_positions_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture, count: int, end: str
) -> None:
    caplog.set_level(logging.INFO, "kohort.fetcher")

    async def main() -> None:
        async with MemoryCluster(topics={"t": count}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None):
                pass

    run_virtual(main)
    (line,) = caplog.messages
    assert line.startswith("reading starts by 'earliest': t-")
    assert line.endswith(end)


def test_one_failing_partition_is_named_with_its_offset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort.fetcher")

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                await consumer.poll(timeout_ms=1_000)
                caplog.clear()
                with cluster.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1):
                    await consumer.poll(timeout_ms=5_000)

    run_virtual(main)
    (line,) = caplog.messages
    assert line.startswith("fetching t-0 at offset 0: NOT_LEADER_OR_FOLLOWER")


def test_a_repeated_message_is_counted_until_it_changes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    repeats = RepeatedLog(logging.getLogger("kohort.test"))
    for second in range(40):
        now = 100.0 + second
        repeats.log("k", logging.INFO, "down")
    repeats.log("k", logging.INFO, "refused")
    now += 5
    repeats.log("k", logging.INFO, "refused")
    repeats.ended("k")
    repeats.log("k", logging.INFO, "refused")
    assert [record.getMessage() for record in caplog.records] == [
        "down",
        "down (5 times since the last line)",
        "down (10 times since the last line)",
        "down (20 times since the last line)",
        "refused",
        "refused (once since the last line)",
        "refused",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.9999101240000527, "2 s"),
        (2.99992, "3 s"),
        (0.4999, "0.5 s"),
        (0.001, "0.001 s"),
        (1.25, "1.2 s"),
        (12.4, "12 s"),
        (30, "30 s"),
        (None, "any time"),
    ],
)
def test_durations_in_messages_are_rounded(seconds: float | None, text: str) -> None:
    assert in_seconds(seconds) == text


def _look_up(consumer: KafkaConsumer, place: TopicPartition) -> None:
    """Make all calls that look something up, for a topic that does not exist."""
    calls: list[Callable[[], object]] = [
        lambda: consumer.partitions_for_topic(place.topic),
        lambda: consumer.beginning_offsets([place], timeout_ms=1_000),
        lambda: consumer.end_offsets([place], timeout_ms=1_000),
        lambda: consumer.offsets_for_times({place: 0}, timeout_ms=1_000),
        lambda: consumer.committed([place], timeout_ms=1_000),
    ]
    for call in calls:
        try:
            call()
        except KafkaTimeoutError:
            pass


def test_lookups_of_a_mistyped_topic_do_not_create_it() -> None:
    with Cluster() as cluster:
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
            _look_up(consumer, TopicPartition("mistyped", 0))
        assert cluster.topics == {}


@pytest.mark.parametrize("allowed", [True, False])
def test_position_creates_a_topic_only_when_assign_may(allowed: bool) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        with KafkaConsumer(bootstrap_servers=servers, allow_auto_create_topics=allowed) as consumer:
            place = TopicPartition("mistyped", 0)
            consumer.assign([place])
            if allowed:
                assert consumer.position(place, timeout_ms=1_000) == 0
            else:
                with pytest.raises(KafkaTimeoutError):
                    consumer.position(place, timeout_ms=1_000)
        assert cluster.topics == ({"mistyped": 1} if allowed else {})


@pytest.mark.long  # waits for topics that must not appear
@pytest.mark.real_kafka
def test_lookups_of_a_mistyped_topic_do_not_create_it_on_kafka(
    start_kafka: Callable[..., KafkaServer],
) -> None:
    kafka = start_kafka({"auto.create.topics.enable": "true"})
    servers = kafka.bootstrap_servers
    try:
        with KafkaConsumer(bootstrap_servers=servers, group_id="g") as consumer:
            _look_up(consumer, TopicPartition("mistyped", 0))
        with KafkaConsumer(bootstrap_servers=servers) as consumer:
            assert consumer.topics() == set()
    finally:
        kafka.kill()
