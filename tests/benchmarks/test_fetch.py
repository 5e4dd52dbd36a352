"""Parts of benchmarks/fetch.py, run on the in-process cluster with kohort alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks import _names as names
from benchmarks import _read
from benchmarks._clients import Client, clients
from benchmarks._consumers import Ask
from benchmarks._fetch_tables import GOALS, Run, goals
from benchmarks._goals import Figure, Figures, verdict
from benchmarks._program import ProgramError
from benchmarks._raw import FetchError
from benchmarks._reading import Reading
from benchmarks._rounds import turns
from benchmarks._topics import LARGE, PLAIN, SHAPES, TINY, Filled, checksum, fill
from benchmarks.fetch import COMPARED, IN_PROCESS
from benchmarks.fetch import cluster as cluster_of
from kohort.errors import CorruptBatchError, ErrorCode
from kohort.protocol.messages import ProduceRequest
from kohort.records import split_batches
from kohort.testing import Cluster
from kohort.types import TopicPartition
from tests.support.topics import create_topic

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


def read(servers: str, filled: Filled, name: str) -> Reading:
    found: list[Reading] = []
    ask = Ask(servers, filled.topic, f"g-{uuid.uuid4().hex[:8]}")
    _read.read(name, ask, filled.records, found.append)
    return found[0]


def figures_of(readings: dict[tuple[str, str], list[Reading]]) -> Figures:
    return {
        (case, field): [each.figures()[field] for each in done]
        for case, done in readings.items()
        for field in ("rate", "cpu_us", "peak_mb")
    }


def counted(reading: Reading) -> tuple[int, int]:
    """Return number and checksum of the records that were read."""
    assert reading.total is not None
    return reading.records, checksum(reading.total)


@pytest.mark.parametrize("topic", SHAPES)
def test_every_topic_holds_what_was_counted(
    cluster: Cluster, filled: dict[str, Filled], topic: str
) -> None:
    reading = read(cluster.bootstrap_servers, filled[topic], names.RECORDS)
    assert counted(reading) == filled[topic][1:]
    assert reading.records == RECORDS


@pytest.mark.parametrize("name", ON_ONE_TOPIC)
def test_every_way_reads_all_of_every_record(
    cluster: Cluster, filled: dict[str, Filled], name: str
) -> None:
    reading = read(cluster.bootstrap_servers, filled[TINY], name)
    assert counted(reading) == filled[TINY][1:]
    assert reading.rate > 0 and reading.peak_mb > 0


def test_arrow_reads_all_or_is_told_to_be_missing(
    cluster: Cluster, filled: dict[str, Filled], tmp_path: Path
) -> None:
    found, missing = clients([names.ARROW], tmp_path)
    if found:
        reading = read(cluster.bootstrap_servers, filled[TINY], names.ARROW)
        assert counted(reading) == filled[TINY][1:]
    else:
        assert missing[names.ARROW]


def test_a_reading_in_a_process_of_its_own_is_checked(
    cluster: Cluster, filled: dict[str, Filled], tmp_path: Path
) -> None:
    (pure,), missing = clients([names.PURE], tmp_path)
    assert not missing
    reading = pure.read(cluster.bootstrap_servers, filled[TINY])
    assert reading.records == RECORDS
    with pytest.raises(ProgramError, match="something else"):
        pure.read(cluster.bootstrap_servers, filled[TINY]._replace(checksum=1))
    with pytest.raises(ProgramError, match="with this status"):
        failing = Client("it", (*pure.words[:1], "-c", "raise SystemExit('with this status')"))
        failing.read(cluster.bootstrap_servers, filled[TINY])


@pytest.mark.parametrize("topic", SHAPES)
@pytest.mark.parametrize("name", names.ANCHORS)
def test_anchor_reads_all_records(
    cluster: Cluster, filled: dict[str, Filled], name: str, topic: str, tmp_path: Path
) -> None:
    found, missing = clients([name], tmp_path)
    if not found:
        assert missing[name]
        return
    reading = read(cluster.bootstrap_servers, filled[topic], name)
    assert reading.records == filled[topic].records
    assert (reading.total is None) is (name in (names.LIMIT, names.LIMIT_DEFAULT))
    if reading.total is not None:
        assert counted(reading) == filled[topic][1:]


@pytest.mark.parametrize("name", [names.LIMIT, names.BARE_RECORDS])
@pytest.mark.parametrize("partitions", [1, 30])
def test_anchor_reads_from_all_leaders(name: str, partitions: int) -> None:
    with Cluster(2) as two:
        filled = fill(two.bootstrap_servers, SHAPES[LARGE], 0.002, partitions, "wide")
        reading = read(two.bootstrap_servers, filled, name)
        assert reading.records == filled.records == 1000
        leaders = {two.leader(filled.topic, partition) for partition in range(partitions)}
        assert len(leaders) == min(2, partitions)
        assert {each.node_id for each in two.requests if each.api == "Fetch"} == leaders


@pytest.mark.parametrize("name", [names.LIMIT, names.BARE_RECORDS])
def test_anchor_raises_when_fetch_is_refused(cluster: Cluster, name: str) -> None:
    topic = create_topic(cluster.bootstrap_servers, f"refused-{name.split()[0]}", 1)
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    with cluster.fail("Fetch", code), pytest.raises(FetchError, match="error code 1"):
        read(cluster.bootstrap_servers, Filled(topic, 1, 0), name)


@pytest.mark.parametrize("name", [names.BARE_RECORDS, names.BARE_ARROW])
def test_bare_decoder_checks_crcs(cluster: Cluster, name: str) -> None:
    topic = create_topic(cluster.bootstrap_servers, f"corrupt-{name.strip(')')[-5:]}", 1)
    cluster.produce(topic, [("key", "value")])
    with cluster.corrupt(TopicPartition(topic, 0), 0), pytest.raises(CorruptBatchError):
        read(cluster.bootstrap_servers, Filled(topic, 1, 0), name)


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


def test_goal_is_judged_by_medians() -> None:
    slow = (*names.OTHERS, *names.ANCHORS)
    readings = {
        cell: [Reading(100, 0, 1.0 if cell[0] in slow else 0.5, 1.0, 70.0)] * 3 for cell in COMPARED
    }
    rows = goals(figures_of(readings)).splitlines()[2:]
    assert len(rows) == len(GOALS)
    assert "| 2 | 2 to 2 | 0.7 | 0.5 | reached |" in rows[0]
    assert "| 1 | 1 to 1 | 1.2 | 1.6 | reached |" in rows[2]
    assert "| 2 | 2 to 2 | 2.7 | 2 | above the floor |" in rows[6]
    assert "| 2 | 2 to 2 | 6 | 4 | **below the floor** |" in rows[9]
    assert "| 70 | 70 to 70 | 60 | 90 | above the floor |" in rows[-2]
    assert "not measured" in goals({})
    assert verdict(1, 2, 1.5) == verdict(95, 60, 90) == "**below the floor**"


def test_cpu_goal_is_the_ratio_to_the_bare_decoder() -> None:
    goal = next(goal for goal in GOALS if goal.case[1] == "cpu_us")
    assert goal.over == ((names.BARE_ARROW, PLAIN), "cpu_us")
    readings = {
        goal.case[0]: [Reading(100, 0, 1.0, 3.0, 70.0)],
        goal.over[0]: [Reading(100, 0, 1.0, 2.0, 70.0)],
    }
    assert goal.figure(figures_of(readings)) == Figure(1.5, [1.5])
    assert verdict(1.5, goal.goal, goal.floor) == "above the floor"


def test_tables_show_shares_of_limit_and_bare_decoder() -> None:
    def done(rate: float, cpu_us: float) -> list[Reading]:
        return [Reading(1_000_000, 0, 1e6 / rate, cpu_us, 50.0)]

    readings = {
        (names.LIMIT, PLAIN): done(8e6, 0.1),
        (names.BARE_ARROW, PLAIN): done(6e6, 0.2),
        (names.BARE_RECORDS, PLAIN): done(2e6, 0.5),
        (names.ARROW, PLAIN): done(4e6, 0.3),
        (names.TUNED, PLAIN): done(1e6, 1.0),
        (names.TUNED, LARGE): done(1e6, 1.0),
    }
    filled = [Filled("plain-4", 1_000_000, 0)]
    text = Run(4, filled, figures_of(readings), [1.0, 50.0, 1.0]).text()
    assert "### 100 B, plain, 4 partitions" in text
    assert "| limit | 8,000 | 8,000 | 1.00 | 0.100 |  | 50 |" in text
    assert "| kohort Arrow | 4,000 | 4,000 | 0.50 | 0.300 | 1.50 | 50 |" in text
    assert "| confluent-kafka (tuned) | 1,000 | 1,000 | 0.12 | 1.000 | 2.00 | 50 |" in text
    assert "| confluent-kafka (tuned) | 1,000 | 1,000 |  | 1.000 |  | 50 |" in text
    assert "| columns / limit, 100 B | 0.5 | 0.5 to 0.5 | 0.7 | 0.5 | above the floor |" in text
    assert "Medians of 1 rounds. The machine was quiet" in text


def test_in_process_cluster_has_two_brokers() -> None:
    with cluster_of(IN_PROCESS) as servers:
        filled = fill(servers, SHAPES[PLAIN], 0.0001, 2, "both")
        assert counted(read(servers, filled, names.RECORDS)) == filled[1:]
        found = AdminClient({"bootstrap.servers": servers}).list_topics("both", timeout=60)
        assert {part.leader for part in found.topics["both"].partitions.values()} == {1, 2}


def test_names_of_clients_can_be_listed() -> None:
    assert not [name for name in (*names.EVERY, *SHAPES) if "," in name]


def test_first_batch_does_not_count_as_rate() -> None:
    reading = Reading(1000, 0, 0.5, 0.001, 50.0, 800)
    assert reading.rate == 400 and reading.cpu_us == pytest.approx(5)
    at_once = Reading(1000, 0, 1e-6, 1e-6, 50.0, 1000)
    assert at_once.rate == 0 and at_once.cpu_us == 0
    readings = {cell: [at_once] for cell in COMPARED}
    assert GOALS[0].figure(figures_of(readings)) is None
