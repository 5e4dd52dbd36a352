"""Third-party consumers on the in-process cluster: topic discovery, seek by time, commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kohort import TopicPartition
from kohort.testing import Cluster, ProducerRecord
from tests.interop.readers import READERS, Reader
from tests.interop.waiting import wait_until

TOPIC = "orders"
client = pytest.mark.parametrize("client", READERS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: 1}) as running:
        yield running


@contextmanager
def reader(cluster: Cluster, client: str) -> Iterator[Reader]:
    opened = READERS[client](cluster.bootstrap_servers, "shop", "read_uncommitted")
    with closing(opened):
        yield opened


@client
def test_a_subscription_by_expression_finds_new_topics(cluster: Cluster, client: str) -> None:
    for name in ("eu-orders", "us-orders"):
        cluster.produce(name, name)
    values: set[bytes] = set()  # nothing is committed, so all is read again after a rebalance

    with reader(cluster, client) as one:
        one.match("eu-.*")
        wait_until(lambda: values, lambda: values.update(one.read()))
        cluster.produce("eu-stock", "eu-stock")
        wait_until(lambda: len(values) == 2, lambda: values.update(one.read()))
    assert values == {b"eu-orders", b"eu-stock"}


@client
def test_it_reads_from_a_time_on(cluster: Cluster, client: str) -> None:
    for n in range(9):  # three records for each of three times
        cluster.produce(TOPIC, [ProducerRecord(b"%d" % n, timestamp=1_700_000_000_000 + n // 3)])
    values: list[bytes] = []
    with reader(cluster, client) as one:
        assert one.seek_to_time(TOPIC, 1_700_000_000_001) == 3
        wait_until(lambda: len(values) == 6, lambda: values.extend(one.read()))
    assert values == [b"%d" % n for n in range(3, 9)]


@client
def test_what_it_commits_it_reads_back(cluster: Cluster, client: str) -> None:
    cluster.produce(TOPIC, ["x"] * 10)
    metadata = "" if client == "aiokafka" else "half way"
    with reader(cluster, client) as one:
        one.seek_to_time(TOPIC, 0)
        one.commit(TOPIC, 5, "half way")
        assert one.committed(TOPIC) == (5, metadata)
    with reader(cluster, client) as one:
        assert one.committed(TOPIC) == (5, metadata)
    (committed,) = cluster.committed("shop").items()
    assert committed[0] == TopicPartition(TOPIC, 0)
    # confluent-kafka sends the terminating zero of its string, too.
    assert (committed[1].offset, committed[1].metadata.rstrip("\0")) == (5, "half way")
