"""Streams on Spark 4.0 and 4.1, in the order of calls of these versions."""

from __future__ import annotations

import json
import logging

import pyspark
import pytest

from kohort.errors import UnsupportedOptionError
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._older_stream import OlderStreamReader
from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, committed, member, plain
from tests.spark_connector.reading import (
    Query,
    batch_reader,
    delete_before,
    options,
    produce,
    rows,
    stream_reader,
)


@pytest.fixture(autouse=True, params=["4.0.5", "4.1.4"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen: str = request.param
    monkeypatch.setattr(pyspark, "__version__", chosen)
    return chosen


def test_records_are_read_once_over_restarts(cluster: Cluster) -> None:
    query = Query(options(cluster, startingOffsets="earliest"))
    expected = produce(cluster, 5)
    query.start()
    assert isinstance(query.reader, OlderStreamReader)
    query.trigger()
    expected += produce(cluster, 3, partition=1)
    cluster.wait_until(query.trigger)
    query.stop()
    expected += produce(cluster, 2, partition=2)
    query.start()
    query.trigger()
    assert not query.trigger()
    query.stop()
    assert [len(batch) for batch in query.batches] == [5, 3, 2]
    assert sorted(query.values()) == sorted(expected)


def test_unfinished_batch_is_repeated_with_the_same_records(cluster: Cluster) -> None:
    query = Query(options(cluster, startingOffsets="earliest"))
    expected = produce(cluster, 5)
    query.start()
    query.trigger(finish=False)
    query.stop()
    late = produce(cluster, 2, partition=1)
    query.start()
    assert query.values() == expected
    query.trigger()
    query.stop()
    assert query.values() == expected + late


def test_start_at_the_end_is_kept_by_the_first_batch(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster))
    query.start()
    query.trigger()
    query.stop()
    expected = produce(cluster, 2)
    query.start()
    query.trigger()
    query.stop()
    assert query.values()[-2:] == expected
    assert len(query.values()) == 2


def test_option_limits_each_batch(cluster: Cluster) -> None:
    produce(cluster, 12)
    query = Query(options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    query.start()
    assert [query.trigger() for _ in range(4)] == [True, True, True, False]
    query.stop()
    assert [len(batch) for batch in query.batches] == [5, 5, 2]


def test_one_line_names_the_differences(
    cluster: Cluster, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(options(cluster))
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.start()
        query.trigger()
        query.trigger()
    query.stop()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(f"Spark {version} limits no micro-batch")


def test_deleted_records_fail_a_query_that_continues(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    query.trigger()
    query.stop()
    produce(cluster, 5)
    delete_before(cluster, 8)
    query.start()
    with pytest.raises(DataLossError, match=r"orders-0 \[5, 8\)"):
        query.trigger()
    query.stop()


def test_member_commits_finished_batches_and_shares(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = member(cluster)
    query.start()
    cluster.wait_until(query.trigger, DEADLINE)
    query.trigger()
    cluster.wait_until(lambda: committed(cluster).get(0) == 5, DEADLINE)
    query.stop()
    assert query.values() == expected
    with plain(cluster) as consumer:
        expected = produce(cluster, 3)
        got: list[object] = []

        def polled() -> bool:
            for records in consumer.poll(timeout_ms=100).values():
                got.extend(each.value for each in records)
            return len(got) == 3

        cluster.wait_until(polled, DEADLINE)
        assert got == expected
    # The group is ahead of the checkpoint by what the consumer has read.
    query.start()
    expected = produce(cluster, 1)
    before = len(query.values())
    cluster.wait_until(lambda: query.trigger() and len(query.values()) > before, DEADLINE)
    assert query.values()[before:] == expected
    query.stop()


def test_last_batch_of_a_run_is_committed_by_the_next_one(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    cluster.wait_until(query.trigger, DEADLINE)  # trigger(availableNow=True) calls once
    query.stop()
    assert committed(cluster).get(0, 0) == 0
    query.start()
    cluster.wait_until(lambda: not query.trigger(), DEADLINE)
    cluster.wait_until(lambda: committed(cluster).get(0) == 5, DEADLINE)
    query.stop()


def test_batches_are_read_in_full(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    reader = batch_reader(options(cluster), "value binary")
    assert [row["value"] for row in rows(reader, reader.partitions())] == expected


def test_filters_need_a_version_that_passes_them(cluster: Cluster, version: str) -> None:
    given = options(cluster, pushdown=True)
    if version < "4.1":
        with pytest.raises(UnsupportedOptionError, match=r"pushdown requires Spark 4\.1"):
            batch_reader(given)
    else:
        assert hasattr(batch_reader(given), "pushFilters")


def test_offset_before_any_batch_leads_to_no_task(cluster: Cluster) -> None:
    reader = stream_reader(options(cluster), "value binary")
    start = reader.initialOffset()
    assert reader.partitions(start, json.loads(json.dumps(start))) == []
