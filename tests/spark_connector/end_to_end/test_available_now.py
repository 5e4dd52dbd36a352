"""AvailableNow as a member of a group: it ends, and everything it has read is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.brokers import Broker
from tests.interop.members import Members
from tests.interop.peers import APIS, Settings
from tests.spark_connector.end_to_end.choosing import plainly_on
from tests.spark_connector.end_to_end.groups import lag
from tests.spark_connector.end_to_end.ledgers import account
from tests.spark_connector.end_to_end.queries import Plan, start
from tests.spark_connector.end_to_end.waiting import DEADLINE_S, wait_until
from tests.spark_connector.versions import limits_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_kafka]
PARTITIONS, EACH = 4, 1_000
Unique = Callable[[str], str]


def plan(broker: Broker, topic: str, group: str, folder: Path) -> Plan:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.group.id": group,
        "kafka.heartbeat.interval.ms": "300",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1500",
    }
    return Plan("nightly", str(folder), options, available_now=True)


@limits_only
@pytest.mark.cases(1)  # each is a query of several batches
def test_it_reads_in_batches_commits_all_and_ends(
    spark: SparkSession, broker: Broker, unique: Unique, tmp_path: Path
) -> None:
    topic, group = broker.create_topic(unique("now"), PARTITIONS), unique("now")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(EACH)
    nightly = plan(broker, topic, group, tmp_path)
    sizes = [1500, 1500, 1000]
    for _ in range(2):  # the second run finds nothing
        query = start(spark, nightly)
        assert query.awaitTermination(DEADLINE_S)
        written = nightly.ledger.attempts().values()
        assert [[len(rows) for rows in attempts] for attempts in written] == [[n] for n in sizes]
        account(feed.written, {"nightly": nightly.ledger.reads()}).assert_whole()
    assert lag(broker, group) == dict.fromkeys(range(PARTITIONS), 0)


@pytest.mark.long  # a further query of several batches
@plainly_on("cluster")
def test_it_ends_when_a_consumer_joins_in_the_middle(
    spark: SparkSession, broker: Broker, members: Members, unique: Unique, tmp_path: Path
) -> None:
    topic, group = broker.create_topic(unique("now"), PARTITIONS), unique("now")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(EACH)
    nightly = plan(broker, topic, group, tmp_path)
    nightly.ledger.hold.touch()
    query = start(spark, nightly)
    wait_until(lambda: nightly.ledger.held.exists() or query.exception())
    settings = Settings(broker.bootstrap_servers, topic, group, "plain", "cooperative-sticky")
    plain = members.join(APIS["sync"], settings)
    wait_until(lambda: "plain" in broker.describe(group).members)
    nightly.ledger.hold.unlink()
    assert query.awaitTermination(DEADLINE_S)
    # The query reads only what existed. The other consumer reads the partitions that the query
    # lost.
    wait_until(lambda: broker.committed(group) == feed.ends(), explain=members.__str__)
    members.leave()
    found = account(feed.written, {"nightly": nightly.ledger.reads(), "plain": plain.reads})
    found.assert_whole()
    assert found.shared == {}
    assert plain.reads
    assert lag(broker, group) == dict.fromkeys(range(PARTITIONS), 0)
