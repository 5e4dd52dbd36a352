"""The size of a micro-batch, and the conditions for one."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from kohort import TopicPartition
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._batch_limits import BatchDelay
from kohort.testing import Cluster
from tests.spark_connector.members import member
from tests.spark_connector.reading import Query, ends, options, produce, stream_reader

A, B = (TopicPartition("t", number) for number in range(2))


def patience(least: int | None, now: list[float]) -> BatchDelay:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "maxTriggerDelay": "60s"}
    if least is not None:
        given["minOffsetsPerTrigger"] = str(least)
    return BatchDelay(SourceOptions.parse(given, streaming=True), lambda: now[0])


def test_it_waits_for_enough_but_not_for_ever() -> None:
    now = [100.0]
    patient = patience(10, now)
    assert not patient.should_wait({A: 0, B: 0}, {A: 1, B: 0})  # the first batch never waits
    assert patient.should_wait({A: 1, B: 0}, {A: 5, B: 5})
    assert not patient.should_wait({A: 1, B: 0}, {A: 6, B: 5})
    now[0] += 59
    assert patient.should_wait({A: 6, B: 5}, {A: 7, B: 5})
    now[0] += 1
    assert not patient.should_wait({A: 6, B: 5}, {A: 7, B: 5})
    assert patient.should_wait({A: 7, B: 5}, {A: 8, B: 5})


def test_wait_counts_from_the_last_batch_and_not_the_last_look() -> None:
    now = [100.0]
    patient = patience(10, now)
    assert not patient.should_wait({A: 0}, {A: 10})
    now[0] += 60
    assert not patient.should_wait({A: 10}, {A: 10})  # no records, so no batch
    assert not patient.should_wait({A: 10}, {A: 11})


def test_without_the_option_it_waits_for_nothing() -> None:
    patient = patience(None, [0.0])
    for _ in range(3):
        assert not patient.should_wait({A: 0}, {A: 1})


@pytest.mark.parametrize("grouped", [True, False])
def test_a_stream_waits_for_enough(cluster: Cluster, grouped: bool) -> None:
    given = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h", "startingOffsets": "earliest"}
    query = member(cluster, **given) if grouped else Query(options(cluster, **given))
    produce(cluster, 3)
    query.start()
    query.trigger()
    expected = produce(cluster, 9)
    waiting = [query.trigger() for _ in range(3)]
    expected += produce(cluster, 1)
    cluster.wait_until(query.trigger, 60)
    assert not any(waiting)
    assert query.values()[3:] == expected
    # Spark's Trigger.Once takes everything.
    expected += produce(cluster, 1)
    start = query.reader.latestOffset

    def found() -> bool:
        begin = json.loads(query.offset_log[-1])
        return ends(start(begin, ReadAllAvailable()))["orders"]["0"] == 14

    cluster.wait_until(found, 60)
    query.stop()
    query.run_available_now()
    assert query.values()[3:] == expected


def test_the_limit_that_spark_is_told() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "minOffsetsPerTrigger": "7"}
    assert stream_reader(given, "value binary").getDefaultReadLimit() == ReadMinRows(7)
