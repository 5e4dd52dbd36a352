"""The pieces of benchmarks/fetch.py work, on the in-process cluster and with kohort alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import _names as names
from benchmarks._clients import Client, ReadingError, clients
from benchmarks._goals import GOALS, Figure, table, verdict
from benchmarks._plot import Bar, svg
from benchmarks._read import READERS, Ask, Reading
from benchmarks._rounds import turns
from benchmarks._topics import SHAPES, TINY, Filled, checksum, fill
from kohort.protocol.messages import ProduceRequest
from kohort.records import split_batches
from kohort.testing import Cluster

RECORDS = 300
ON_ONE_TOPIC = [name for name in names.OURS if name not in (names.PURE, names.ARROW)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> dict[str, Filled]:
    """Every topic, with a few records in it."""
    return {
        name: fill(cluster.bootstrap_servers, shape, RECORDS / shape.records)
        for name, shape in SHAPES.items()
    }


def read(cluster: Cluster, filled: Filled, name: str) -> Reading:
    group = f"g-{uuid.uuid4().hex[:8]}"
    ask = Ask(cluster.bootstrap_servers, filled.topic, group, filled.records)
    return READERS[name](ask)


@pytest.mark.parametrize("topic", SHAPES)
def test_every_topic_holds_what_was_counted(
    cluster: Cluster, filled: dict[str, Filled], topic: str
) -> None:
    reading = read(cluster, filled[topic], names.RECORDS)
    assert (reading.records, checksum(reading.total)) == filled[topic][1:]
    assert reading.records == RECORDS


@pytest.mark.parametrize("name", ON_ONE_TOPIC)
def test_every_way_reads_all_of_every_record(
    cluster: Cluster, filled: dict[str, Filled], name: str
) -> None:
    reading = read(cluster, filled[TINY], name)
    assert (reading.records, checksum(reading.total)) == filled[TINY][1:]
    assert reading.rate > 0 and reading.peak_mb > 0


def test_arrow_reads_all_or_is_told_to_be_missing(
    cluster: Cluster, filled: dict[str, Filled], tmp_path: Path
) -> None:
    found, missing = clients([names.ARROW], tmp_path)
    if found:
        reading = read(cluster, filled[TINY], names.ARROW)
        assert (reading.records, checksum(reading.total)) == filled[TINY][1:]
    else:
        assert missing[names.ARROW]


def test_a_reading_in_a_process_of_its_own_is_checked(
    cluster: Cluster, filled: dict[str, Filled], tmp_path: Path
) -> None:
    (pure,), missing = clients([names.PURE], tmp_path)
    assert not missing
    reading = pure.read(cluster.bootstrap_servers, filled[TINY])
    assert reading.records == RECORDS
    with pytest.raises(ReadingError, match="something else"):
        pure.read(cluster.bootstrap_servers, filled[TINY]._replace(checksum=1))
    with pytest.raises(ReadingError, match="with this status"):
        failing = Client("it", (*pure.words[:1], "-c", "raise SystemExit('with this status')"))
        failing.read(cluster.bootstrap_servers, filled[TINY])


def test_tiny_batches_have_one_to_ten_records(cluster: Cluster, filled: dict[str, Filled]) -> None:
    sizes = {
        batch.header.count
        for request in cluster.requests
        if isinstance(request.message, ProduceRequest)
        for topic in request.message.topic_data
        if topic.name == filled[TINY].topic
        for partition in topic.partition_data
        for batch in split_batches(partition.records or b"")
    }
    assert len(sizes) > 5 and max(sizes) <= 10


def test_all_take_turns_in_an_order_that_changes() -> None:
    assert list(turns(2, "ab")) == [(0, "b"), (0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]
    assert list(turns(1, "ab", warm_up=False)) == [(1, "a"), (1, "b")]


def test_a_goal_is_judged_by_the_medians() -> None:
    readings = {
        cell: [Reading(100, 0, 1.0 if cell[0] in names.OTHERS else 0.1, 1.0, 70.0)] * 3
        for goal in GOALS
        for cell in goal.cells
    }
    rows = table(readings, Figure(0.9, [0.9])).splitlines()[2:]
    assert len(rows) == len(GOALS) + 1
    assert "| 10 | 10 to 10 | 7 | 4 | reached |" in rows[0]
    assert "| 70 | 70 to 70 | 60 | 90 | above the floor |" in rows[-2]
    assert "not measured" in table({}, None)
    assert verdict(1, 2, 1.5) == verdict(95, 60, 90) == "**below the floor**"


def test_the_plot_is_well_formed() -> None:
    bars = [Bar("a < b", 5, 4, 6, True), Bar("c", 1, 1, 1, False)]
    ElementTree.fromstring(svg({"one": bars, "two": bars, "three": bars[:1]}, "k/s"))
