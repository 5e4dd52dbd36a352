"""``scan_kafka()``: results equal to polars on the whole table, and how little is read for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort import polars as source
from kohort.errors import UnknownTopicOrPartitionError
from kohort.polars import scan_kafka
from kohort.testing import Cluster, ProducerRecord

pl = pytest.importorskip("polars")

START = datetime(2026, 11, 1, tzinfo=UTC)
COLUMN = {name: pl.col(name) for name in ("partition", "offset", "timestamp", "value")}
PARTITION, OFFSET, TIMESTAMP, VALUE = COLUMN.values()


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three logs of 40 records a minute apart, some of them out of order."""
    rng = random.Random(7)
    with Cluster(topics={"orders": 3}) as cluster:
        for partition in range(3):
            minutes = [minute + rng.choice((0, 0, 0, -9, 5)) for minute in range(10, 50)]
            cluster.produce(
                "orders",
                [
                    ProducerRecord(
                        f"{partition}-{number}",
                        timestamp=int(at(minute).timestamp() * 1000),
                        headers=[("n", b"1")],
                        partition=partition,
                    )
                    for number, minute in enumerate(minutes)
                ],
            )
        yield cluster


@pytest.fixture
def read_ranges(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, Any]]:
    """Note the bounds of each read."""
    ranges: list[dict[TopicPartition, Any]] = []
    original: Any = vars(source)["read_bounds"]

    def noting(consumer: Any, bounds: Any, **options: Any) -> Any:
        ranges.append(dict(bounds))
        return original(consumer, bounds, **options)

    monkeypatch.setattr(source, "read_bounds", noting)
    return ranges


def size(bounds: dict[TopicPartition, Any]) -> int:
    return sum(each.end - each.start for each in bounds.values())


QUERIES = [
    pytest.param(lambda frame: frame, 120, id="all"),
    pytest.param(lambda frame: frame.filter(PARTITION == 1), 40, id="partition"),
    pytest.param(lambda frame: frame.filter(PARTITION.is_in([0, 2]), OFFSET < 5), 10, id="in"),
    pytest.param(lambda frame: frame.filter(OFFSET.is_between(5, 9)), 15, id="between"),
    pytest.param(lambda frame: frame.filter(OFFSET.is_between(5, 9, closed="none")), 9, id="open"),
    pytest.param(lambda frame: frame.filter(pl.lit(35) <= OFFSET), 15, id="mirrored"),
    pytest.param(lambda frame: frame.filter((OFFSET == 3) & (VALUE != b"1-3")), 3, id="equal"),
    pytest.param(lambda frame: frame.filter(OFFSET > 50), 0, id="none"),
    pytest.param(lambda frame: frame.filter(at(40) <= TIMESTAMP), None, id="since"),
    pytest.param(lambda frame: frame.filter(at(40) < TIMESTAMP, at(45) > TIMESTAMP), None, id="gt"),
    pytest.param(lambda frame: frame.filter(at(30) == TIMESTAMP), None, id="moment"),
    pytest.param(lambda frame: frame.filter(at(20) > TIMESTAMP), 120, id="until"),
    pytest.param(lambda frame: frame.filter((PARTITION == 0) | (OFFSET > 30)), 120, id="or"),
    pytest.param(lambda frame: frame.filter(~(PARTITION == 0)), 120, id="not"),
    pytest.param(lambda frame: frame.filter(OFFSET > PARTITION), 120, id="columns"),
    pytest.param(lambda frame: frame.filter(PARTITION == 1).select("value"), 40, id="projected"),
]


@pytest.mark.parametrize(("query", "read"), QUERIES)
@pytest.mark.cases(len(QUERIES))
def test_result_is_that_of_the_table_and_only_its_part_is_read(
    cluster: Cluster, read_ranges: list[dict[TopicPartition, Any]], query: Any, read: int | None
) -> None:
    servers = cluster.bootstrap_servers
    found = query(scan_kafka("orders", bootstrap_servers=servers)).collect()
    expected = query(pl.DataFrame(kohort.read("orders", bootstrap_servers=servers)).lazy())
    assert found.sort(found.columns[:5]).equals(expected.collect().sort(found.columns[:5])), found
    [bounds] = read_ranges
    if read is None:
        assert found.height <= size(bounds) < 100
    else:
        assert size(bounds) == read


def test_head_reads_before_it_filters(cluster: Cluster) -> None:
    frame = scan_kafka("orders", partitions=[1], bootstrap_servers=cluster.bootstrap_servers)
    assert frame.head(3).collect()["offset"].to_list() == [0, 1, 2]
    assert frame.head(3).filter(OFFSET > 1).collect()["offset"].to_list() == [2]
    assert frame.filter(OFFSET > 1).head(2).collect()["offset"].to_list() == [2, 3]
    assert frame.slice(2, 2).collect()["offset"].to_list() == [2, 3]
    assert frame.select(pl.len()).collect().item() == 40


def test_scan_has_bounds_like_read(cluster: Cluster) -> None:
    frame = scan_kafka(
        "orders",
        since={0: 38, 1: 40, 2: 40},
        isolation_level="read_committed",
        bootstrap_servers=cluster.bootstrap_servers,
    )
    assert frame.collect()["value"].to_list() == [b"0-38", b"0-39"]
    assert frame.collect_schema() == frame.collect().schema
    assert "kafka orders" in frame.explain()


def test_scan_raises_the_errors_of_read(cluster: Cluster) -> None:
    frame = scan_kafka("nowhere", bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises((UnknownTopicOrPartitionError, pl.exceptions.ComputeError), match="nowhere"):
        frame.collect()


def test_predicate_that_is_not_understood_is_left_to_polars(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.polars.json.loads", lambda text: {"Unknown": text})
    frame = scan_kafka("orders", bootstrap_servers=cluster.bootstrap_servers)
    assert frame.filter(OFFSET == 5).collect().height == 3
