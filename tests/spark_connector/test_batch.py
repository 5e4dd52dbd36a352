"""Batch queries on the in-process cluster, without Spark: the rows, and the errors."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    CorruptBatchError,
    InvalidOptionError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kohort.spark_connector import _consumers, _reading
from kohort.spark_connector._batch import KohortPartition
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._ranges import OffsetRange
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._planning import OffsetPlanner
from kohort.testing import Cluster, ProducerRecord
from tests.spark_connector.reading import (
    batch_reader,
    delete_before,
    options,
    produce,
    read_batch,
    rows,
    source,
    values,
)


def test_all_that_is_there_is_read(cluster: Cluster) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 50, partition=p)]
    found = read_batch(options(cluster))
    assert values(found) == expected
    assert [(row["partition"], row["offset"]) for row in found] == [
        (partition, offset) for partition in range(3) for offset in range(50)
    ]
    assert {row["topic"] for row in found} == {"orders"}


def test_an_empty_topic_is_an_empty_batch(cluster: Cluster) -> None:
    assert read_batch(options(cluster)) == []
    # Spark passes one partition, None, for an empty list.
    reader = batch_reader(options(cluster), "value binary")
    assert list(reader.read(None)) == []


def test_the_batch_is_what_was_there_when_it_was_planned(cluster: Cluster) -> None:
    expected = produce(cluster, 20)
    reader = batch_reader(options(cluster), "value binary")
    planned = reader.partitions()
    produce(cluster, 20)
    for _ in range(2):
        assert values(list(rows(reader, planned))) == expected


def test_headers_when_asked_for(cluster: Cluster) -> None:
    cluster.produce("orders", [ProducerRecord(b"v", headers=[("h", b"1")], partition=0)])
    made = source(options(cluster, includeHeaders=True))
    assert made.schema().endswith("headers array<struct<key: string, value: binary>>")
    assert "headers" not in source(options(cluster)).schema()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "earliest"}, range(20)),
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": '{"orders": {"0": 5, "1": -2, "2": -1}}'}, range(5, 20)),
        (
            {"startingOffsets": '{"orders": "Earliest"}', "endingOffsets": '{"orders": "latest"}'},
            range(20),
        ),
        ({"startingOffsets": '{"orders": "latest"}'}, []),
        ({"endingOffsets": '{"orders": {"0": 7, "1": -1, "2": 0}}'}, range(7)),
        (
            {
                "startingOffsets": '{"orders": {"0": 5, "1": 0, "2": 0}}',
                "endingOffsets": '{"orders": {"0": 6, "1": 0, "2": 0}}',
            },
            [5],
        ),
    ],
)
def test_where_it_starts_and_ends(cluster: Cluster, given: dict[str, str], expected: Any) -> None:
    produced = produce(cluster, 20)
    assert values(read_batch(options(cluster, **given))) == [produced[at] for at in expected]


def timed(cluster: Cluster) -> list[bytes]:
    """Produce times 1000, 2000 ... 10000 to partition 0, and only 5000 to partition 1."""
    times = range(1000, 11_000, 1000)
    made = {b"%d" % time: time for time in times}
    cluster.produce(
        "orders",
        [ProducerRecord(value, timestamp=time, partition=0) for value, time in made.items()],
    )
    cluster.produce("orders", [ProducerRecord(b"one", timestamp=5000, partition=1)])
    return list(made)


LATE = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.mark.parametrize(
    ("given", "expected", "one"),
    [
        ({"startingTimestamp": "3500"} | LATE, range(3, 10), True),
        ({"startingTimestamp": "5001"} | LATE, range(5, 10), False),
        ({"startingTimestamp": "99999"} | LATE, [], False),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 9000, "1": 0, "2": 7}}'} | LATE,
            [8, 9],
            True,
        ),
        ({"endingTimestamp": "4000"}, range(3), False),
        ({"endingTimestamp": "5001"}, range(5), True),
        ({"endingTimestamp": "99999"}, range(10), True),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 2000, "1": 9, "2": 7}}'}, [0], False),
        ({"startingTimestamp": "2000", "endingTimestamp": "4000"} | LATE, [1, 2], False),
        # A time for all topics precedes times for each, and these precede offsets.
        (
            {
                "startingTimestamp": "9000",
                "startingOffsetsByTimestamp": '{"orders": {"0": 3000, "1": 0, "2": 0}}',
                "startingOffsets": "earliest",
            }
            | LATE,
            [8, 9],
            False,
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders": {"0": 9000, "1": 0, "2": 0}}',
                "startingOffsets": '{"orders": {"0": 5, "1": 0, "2": 0}}',
            }
            | LATE,
            [8, 9],
            True,
        ),
        (
            {
                "endingTimestamp": "2000",
                "endingOffsetsByTimestamp": '{"orders": {"0": 3000, "1": 0, "2": 0}}',
                "endingOffsets": "latest",
            },
            [0],
            False,
        ),
        # A range that starts after its end in time is empty, whatever option sets the start.
        ({"startingOffsets": "latest", "endingTimestamp": "3000"}, [], False),
        (
            {
                "startingOffsets": '{"orders": {"0": 5, "1": 1, "2": 0}}',
                "endingTimestamp": "3000",
            },
            [],
            False,
        ),
    ],
)
def test_starts_and_ends_by_time(
    cluster: Cluster, given: dict[str, str], expected: Any, one: bool
) -> None:
    made = timed(cluster)
    found = values(read_batch(options(cluster, **given)))
    assert found == [made[at] for at in expected] + ([b"one"] if one else [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingTimestamp": "5001"}, "startingTimestamp: orders-1 has no record at or after 50"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 1, "1": 1, "2": 1}}'},
            "startingOffsetsByTimestamp: orders-2 has no record at or after 1",
        ),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "orders-1 is in one of them"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "orders-1 is in one of them"),
    ],
)
def test_a_start_by_time_that_nothing_matches_is_an_error(
    cluster: Cluster, given: dict[str, str], said: str
) -> None:
    timed(cluster)
    with pytest.raises(InvalidOptionError, match=said):
        read_batch(options(cluster, **given))


def test_offsets_are_looked_up_again_as_often_as_wanted(cluster: Cluster) -> None:
    class Flaky:
        """A consumer that raises errors, then returns offsets."""

        def __init__(self, *errors: KafkaError) -> None:
            self.errors = list(errors)

        def end_offsets(
            self, partitions: list[TopicPartition], timeout_ms: float | None
        ) -> dict[TopicPartition, int]:
            if self.errors:
                raise self.errors.pop(0)
            return dict.fromkeys(partitions, 7)

    wanted = {"fetchOffset.numRetries": 2, "fetchOffset.retryIntervalMs": 30}
    given = SourceOptions.parse(options(cluster, **wanted), streaming=False)
    tp, slept = TopicPartition("orders", 0), list[float]()

    def ends(*errors: KafkaError) -> dict[TopicPartition, int]:
        return OffsetPlanner(cast("KafkaConsumer", Flaky(*errors)), given, slept.append).latest(
            [tp]
        )

    late = KafkaTimeoutError("late")
    assert ends(late, late) == {tp: 7}
    assert slept == [0.03, 0.03]
    with pytest.raises(KafkaTimeoutError):
        ends(late, late, late)
    with pytest.raises(InvalidOptionError):
        ends(InvalidOptionError("no"))
    assert len(slept) == 4


def test_batch_starts_at_committed_offsets_or_the_beginning(cluster: Cluster) -> None:
    zero, one = produce(cluster, 10), produce(cluster, 10, partition=1)
    consumer = _consumers.make_consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing"}, group=True
    )
    consumer.commit({TopicPartition("orders", 0): 4})
    consumer.close()
    given = options(cluster, startingOffsets="committed", kafka_group_id="billing")
    assert values(read_batch(given)) == zero[4:] + one
    # A batch has no end at which it could commit.
    assert set(cluster.committed("billing")) == {TopicPartition("orders", 0)}


def test_topics_by_pattern_match_as_a_whole(cluster: Cluster) -> None:
    for topic in ("orders-eu", "orders-us", "old-orders-eu"):
        cluster.create_topic(topic, 1)
        produce(cluster, 1, topic)
    found = read_batch(options(cluster, subscribePattern="orders-.."))
    assert sorted(row["topic"] for row in found) == ["orders-eu", "orders-us"]
    assert read_batch(options(cluster, subscribePattern="nothing-of-that")) == []


def test_several_topics_and_single_partitions(cluster: Cluster) -> None:
    cluster.create_topic("more", 2)
    for partition in range(2):
        produce(cluster, 1, "more", partition)
        produce(cluster, 1, "orders", partition)
    assert len(read_batch(options(cluster, subscribe="orders,more"))) == 4
    found = read_batch(options(cluster, assign='{"orders": [1], "more": [0]}'))
    assert sorted(values(found)) == [b"more-0-0", b"orders-1-0"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "orders,orderz"}, "no topic is called orderz"),
        ({"assign": '{"orders": [3]}'}, "topic orders has no partition 3"),
        ({"assign": '{"orderz": [0]}'}, "no topic is called orderz"),
    ],
)
def test_what_is_not_there_is_an_error(cluster: Cluster, given: dict[str, str], said: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=said):
        read_batch(options(cluster, **given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingOffsets": '{"orders": "earliest", "returns": "latest"}'},
            "startingOffsets names .*: returns is in one of",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 5}}'},
            "startingOffsets names .*orders-1 is in one of",
        ),
        ({"endingOffsets": '{"orders": {"0": 5}, "x": {"0": 1}}'}, "endingOffsets names "),
        (
            {
                "startingOffsets": '{"orders": {"0": 5, "1": 0, "2": 0}}',
                "endingOffsets": '{"orders": {"0": 4, "1": 0, "2": 0}}',
            },
            "startingOffsets=5 is after endingOffsets=4",
        ),
    ],
)
def test_offsets_that_do_not_fit_are_an_error(
    cluster: Cluster, given: dict[str, str], said: str
) -> None:
    produce(cluster, 10)
    with pytest.raises(InvalidOptionError, match=said):
        read_batch(options(cluster, **given))


def test_offsets_that_are_gone_or_not_there_yet_are_data_loss(cluster: Cluster) -> None:
    expected = produce(cluster, 10)
    delete_before(cluster, 4)
    given = options(
        cluster,
        startingOffsets='{"orders": {"0": 2, "1": 0, "2": 0}}',
        endingOffsets='{"orders": {"0": 15, "1": 0, "2": 0}}',
    )
    with pytest.raises(DataLossError, match=r"orders-0 \[2, 4\), orders-0 \[10, 15\)") as caught:
        read_batch(given)
    assert caught.value.ranges == (OffsetRange("orders", 0, 2, 4), OffsetRange("orders", 0, 10, 15))
    assert values(read_batch(given | {"failOnDataLoss": "false"})) == expected[4:]


@pytest.mark.parametrize("ending", [{}, {"endingTimestamp": 4_000_000_000_000}])
def test_a_start_behind_the_end_of_the_log_is_data_loss(
    cluster: Cluster, ending: dict[str, object]
) -> None:
    produce(cluster, 3)
    given = options(cluster, startingOffsets='{"orders": {"0": 9, "1": 0, "2": 0}}', **ending)
    with pytest.raises(DataLossError, match=r"orders-0 \[3, 9\)"):
        read_batch(given)
    assert read_batch(given | {"failOnDataLoss": "false"}) == []


def test_offsets_deleted_after_planning_are_data_loss(cluster: Cluster) -> None:
    expected = produce(cluster, 10)
    reader = batch_reader(options(cluster), "value binary")
    planned = reader.partitions()
    delete_before(cluster, 6)
    with pytest.raises(DataLossError, match=r"orders-0 \[0, 6\).*failOnDataLoss=false"):
        list(rows(reader, planned))
    lenient = batch_reader(options(cluster, failOnDataLoss=False), "value binary")
    assert values(list(rows(lenient, planned))) == expected[6:]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_corrupt_batch_fails_the_task_or_is_left_out(cluster: Cluster, at: int) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.produce("orders", [value], partition=0)
    cluster.corrupt(TopicPartition("orders", 0), at)
    with pytest.raises(CorruptBatchError):
        read_batch(options(cluster))
    expected = [value for n, value in enumerate([b"a", b"b", b"c"]) if n != at]
    assert values(read_batch(options(cluster, kafka_on_error="skip"))) == expected


def test_ranges_of_one_partition_in_one_task(cluster: Cluster) -> None:
    expected = produce(cluster, 30)
    reader = batch_reader(options(cluster), "value binary")
    task = KohortPartition([OffsetRange("orders", 0, 20, 22), OffsetRange("orders", 0, 3, 5)])
    assert values(list(rows(reader, [task]))) == expected[3:5] + expected[20:22]


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ({}, 3),
        ({"executorCores": 2}, 2),
        ({"minPartitions": 6}, 6),
        ({"maxRecordsPerPartition": 10}, 6),
        ({"maxTasks": 1}, 1),
    ],
)
def test_tasks(cluster: Cluster, given: dict[str, Any], tasks: int) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 20, partition=p)]
    reader = batch_reader(options(cluster, **given), "value binary, offset bigint")
    planned = reader.partitions()
    assert len(planned) == tasks
    assert sorted(values(list(rows(reader, planned)))) == sorted(expected)


def test_connections_are_kept_for_the_next_task(cluster: Cluster) -> None:
    produce(cluster, 10)
    given = options(cluster)
    reader = batch_reader(given, "value binary")
    planned = reader.partitions()
    list(rows(reader, planned))
    (kept,) = [each for each in _consumers._idle.values() if each]
    first = kept[0]
    assert first.paused() == first.assignment()  # so it fetches nothing
    assert len(list(rows(reader, planned))) == 10
    assert kept == [first]
    # A task that ends early returns its consumer. A task that fails does not.
    batches = reader.read(planned[0])
    next(batches)
    batches.close()
    assert kept == [first]
    with pytest.raises(RuntimeError), _consumers.borrowed_consumer({"bootstrap.servers": "h:1"}):
        raise RuntimeError
    assert not _consumers._idle[next(reversed(_consumers._idle))]


def test_a_worker_holds_about_as_many_bytes_as_it_is_meant_to(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reading, "MAX_BATCH_BYTES", 100_000)
    expected = [b"%d" % number + bytes(10_000) for number in range(100)]
    cluster.produce("orders", [ProducerRecord(value, partition=0) for value in expected])
    reader = batch_reader(options(cluster), "value binary")
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert max(batch.nbytes for batch in batches) <= 100_000
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == expected
    assert len(batches) < 30


def test_no_reader_joins_the_group(cluster: Cluster) -> None:
    produce(cluster, 10)
    assert len(read_batch(options(cluster, kafka_group_id="billing"))) == 10
    assert "JoinGroup" not in {request.api for request in cluster.requests}


def test_a_reader_shows_no_secret(cluster: Cluster) -> None:
    given = options(cluster) | {"kafka.client.id": "hunter2"}
    reader = batch_reader(given, "value binary")
    assert "hunter2" not in repr(vars(reader)["_options"])
    assert json.dumps([each.ranges for each in reader.partitions()]).count("hunter2") == 0
