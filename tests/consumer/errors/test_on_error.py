"""The option ``on_error`` on both APIs: skip, pause, or a function that decides."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import (
    CorruptBatchError,
    DataError,
    InvalidOptionError,
    RecordDeserializationError,
    ReentrantCallError,
)
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import (
    PATIENCE,
    apoll_quietly,
    apoll_until,
    aread,
    committed,
    poll_error,
    poll_until,
    read,
    values,
)
from tests.support.awaited import EACH_API


def picky(data: bytes) -> str:
    """Return the text of a value. Raise on one value."""
    if data.startswith(b"poison"):
        raise LookupError(data)
    return data.decode()


def spoil(cluster: Cluster, topic: str, how: str) -> TopicPartition:
    """Produce a, an invalid batch, c to partition 0 and x, y to partition 1. Each is one batch."""
    for value in (b"a", b"poison", b"c"):
        cluster.produce(topic, [value], partition=0)
    cluster.produce(topic, [b"x", b"y"], partition=1)
    if how != "deserializer":
        cluster.corrupt(TopicPartition(topic, 0), 1, how)
    return TopicPartition(topic, 0)


SPOILT = pytest.mark.parametrize(
    "how", ["deserializer", "crc", "records", "codec", "magic", "length"]
)


@SPOILT
def test_skip_goes_on_with_what_can_be_read(
    cluster: Cluster,
    topic: str,
    group: str,
    make: MakeConsumer,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = spoil(cluster, topic, how)
    consumer = make(topic, group_id=group, value_deserializer=picky, on_error="skip")
    with caplog.at_level(logging.WARNING, "kohort.fetcher"):
        seen = poll_until(consumer, lambda: consumer.positions() == {bad: 3, (topic, 1): 2})
    assert sorted(values(seen)) == ["a", "c", "x", "y"]
    [warning] = [message for message in caplog.messages if "skipped" in message]
    assert f"{topic}-0: skipped " in warning
    assert " bytes at offset 1" in warning and "The next offset is 2." in warning
    metrics = consumer.metrics()
    assert metrics is not None
    figures = metrics["consumer-fetch-manager-metrics"]
    records, batches = (1, 0) if how == "deserializer" else (0, 1)
    assert figures["records-skipped-total"] == records
    assert figures["batches-skipped-total"] == batches
    assert (figures["bytes-skipped-total"] > 0) == (how not in ("magic", "length"))
    assert figures["errors-raised-total"] == 0


@pytest.mark.parametrize("how", ["deserializer", "crc"])
def test_what_was_skipped_last_counts_as_consumed(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, how: str
) -> None:
    bad = TopicPartition(topic, 0)
    for value in (b"a", b"poison"):
        cluster.produce(topic, [value], partition=0)
    if how == "crc":
        cluster.corrupt(bad, 1)
    consumer = make(topic, group_id=group, value_deserializer=picky, on_error="skip")
    assert values(poll_until(consumer, lambda: consumer.positions().get(bad) == 2)) == ["a"]
    consumer.close()
    assert cluster.committed(group)[bad].offset == 2


@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("how", ["deserializer", "crc"])
async def test_pause_holds_the_partition_and_resume_tries_again(
    cluster: Cluster, topic: str, options: dict[str, Any], consumer_class: Any, how: str
) -> None:
    bad, broken = TopicPartition(topic, 0), [True]
    for value in (b"a", b"b", b"c"):
        cluster.produce(topic, [value], partition=0)
    cluster.produce(topic, [b"x"], partition=1)
    damage = cluster.corrupt(bad, 1) if how == "crc" else None

    def moody(data: bytes) -> str:
        if damage is None and broken and data == b"b":
            raise LookupError(data)
        return data.decode()

    options |= {"value_deserializer": moody, "on_error": "pause"}
    async with consumer_class(topic, **options) as consumer:
        seen = await apoll_until(consumer, consumer.paused)
        seen += await aread(consumer, 2 - len(seen))
        assert sorted(values(seen)) == ["a", "x"]
        assert (consumer.paused(), await consumer.position(bad)) == ({bad}, 1)
        why = consumer.explain()
        assert any("paused" in reason and str(bad[0]) in reason for reason in why.reasons)
        name = "CorruptBatchError" if damage else "RecordDeserializationError"
        assert any(name in reason for reason in why.reasons), why
        assert await apoll_quietly(consumer) == []
        cluster.produce(topic, [b"y"], partition=1)
        assert values(await aread(consumer, 1)) == ["y"]
        consumer.resume(bad)
        assert await apoll_until(consumer, consumer.paused) == [], "it is as bad as it was"
        consumer.seek(bad, 2)
        consumer.resume(bad)
        assert values(await aread(consumer, 1)) == ["c"]
        consumer.seek(bad, 1)
        assert await apoll_until(consumer, consumer.paused) == [], "it is as bad as it was"
        broken.clear()
        if damage is not None:
            damage.stop()
        consumer.resume(bad)
        assert values(await aread(consumer, 2)) == ["b", "c"]
        assert not any(name in reason for reason in consumer.explain().reasons)


@pytest.mark.parametrize("how", ["deserializer", "crc"])
def test_a_function_is_called_inside_poll_on_the_callers_thread(
    cluster: Cluster, topic: str, make: MakeConsumer, how: str
) -> None:
    bad = spoil(cluster, topic, how)
    calls: list[DataError] = []

    def policy(error: DataError) -> str:
        calls.append(error)
        assert threading.current_thread() is threading.main_thread()
        assert consumer.assignment() == {bad, (topic, 1)}
        with pytest.raises(ReentrantCallError):
            consumer.poll()
        return "raise" if len(calls) == 1 else "skip"

    consumer = make(topic, group_id=None, value_deserializer=picky, on_error=policy)
    error = poll_error(consumer, DataError)
    assert error is calls[0]
    assert (error.topic_partition, error.offset, error.next_offset) == (bad, 1, 2)
    assert error.raw is not None and b"poison" in error.raw
    kind = RecordDeserializationError if how == "deserializer" else CorruptBatchError
    assert isinstance(error, kind)
    assert isinstance(error.__cause__, LookupError) == (how == "deserializer")
    assert consumer.position(bad) == 1
    poll_until(consumer, lambda: consumer.position(bad) == 3)
    assert len(calls) == 2


@pytest.mark.parametrize("how", ["deserializer", "crc"])
def test_what_a_function_raises_comes_out_of_poll(
    cluster: Cluster, topic: str, make: MakeConsumer, how: str
) -> None:
    class Mine(Exception):
        pass

    def policy(error: DataError) -> str:
        raise Mine from error

    bad = spoil(cluster, topic, how)
    consumer = make(topic, group_id=None, value_deserializer=picky, on_error=policy)
    seen: list[Any] = []
    raised: list[Mine] = []
    while len(seen) < 3 or not raised:
        try:
            for part in consumer.poll(200).values():
                seen += values(part)
        except Mine as error:
            raised.append(error)
    assert sorted(seen) == ["a", "x", "y"]
    assert isinstance(raised[0].__cause__, DataError)
    assert consumer.position(bad) == 1


@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("how", ["deserializer", "crc"])
async def test_iteration_skips_too(
    cluster: Cluster,
    topic: str,
    group: str,
    options: dict[str, Any],
    consumer_class: Any,
    how: str,
) -> None:
    bad = spoil(cluster, topic, how)
    options |= {"value_deserializer": picky, "on_error": "skip", "group_id": group}
    async with consumer_class(topic, **options) as consumer:
        seen = [(await anext(consumer)).value for _ in range(4)]
        assert sorted(seen) == ["a", "c", "x", "y"]
        assert await consumer.position(bad) == 3
        await consumer.commit()
        assert committed(cluster, group, bad) == 3
        cluster.produce(topic, [b"poison 2", b"d"], partition=0)
        polled = await consumer.poll(10_000, 1, partitions=[bad])
        assert values(polled[bad]) == ["d"]


@pytest.mark.parametrize("how", ["deserializer", "crc"])
def test_iteration_gives_what_is_before_the_pause(
    cluster: Cluster, topic: str, make: MakeConsumer, how: str
) -> None:
    bad = spoil(cluster, topic, how)
    consumer = make(topic, group_id=None, value_deserializer=picky, on_error="pause")
    seen: list[Any] = [next(consumer).value for _ in range(3)]
    assert sorted(seen) == ["a", "x", "y"]
    poll_until(consumer, consumer.paused)
    assert consumer.position(bad) == 1


@pytest.mark.parametrize("how", ["crc", "magic"])
@pytest.mark.parametrize("policy", ["skip", "pause"])
def test_tables_go_by_it_too(
    cluster: Cluster, topic: str, make: MakeConsumer, policy: str, how: str
) -> None:
    pytest.importorskip("pyarrow")
    bad = spoil(cluster, topic, how)
    consumer = make(topic, group_id=None, on_error=policy)
    expected = [b"a", b"c", b"x", b"y"] if policy == "skip" else [b"a", b"x", b"y"]
    seen: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(seen) < len(expected) or (policy == "pause" and not consumer.paused()):
        assert time.monotonic() < deadline, seen
        seen += consumer.poll_arrow(timeout_ms=200).column("value").to_pylist()
    assert sorted(seen) == expected
    assert consumer.position(bad) == (3 if policy == "skip" else 1)


@pytest.mark.parametrize("given", ["skip", "SKIP", lambda error: "skip"])
def test_properties_say_it_as_well(cluster: Cluster, topic: str, given: object) -> None:
    cluster.produce(topic, [b"a", b"poison", b"c"], partition=0)
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "on.error": given,
    }
    with KafkaConsumer.from_properties(properties, topic, value_deserializer=picky) as consumer:
        assert values(read(consumer, 2)) == ["a", "c"]


async def awaited(error: DataError) -> str:
    return "skip"


@pytest.mark.parametrize("wrong", ["ignore", None, 3, awaited])
def test_what_is_no_policy_is_refused(
    options: dict[str, Any], wrong: object, make: MakeConsumer
) -> None:
    creators: list[Callable[..., object]] = [make, AsyncKafkaConsumer]
    for create in creators:
        with pytest.raises(InvalidOptionError, match='"raise", "skip", "pause"'):
            create(on_error=wrong)
