"""Replays of an unfinished batch: the same rows, whichever member owns the partitions."""

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
from tests.spark_connector.end_to_end.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_kafka]
PARTITIONS = 3
Unique = Callable[[str], str]


@plainly_on("cluster")
def test_what_was_not_finished_is_written_again(
    spark: SparkSession, broker: Broker, members: Members, unique: Unique, tmp_path: Path
) -> None:
    replay(spark, broker, members, unique, tmp_path, owned=False)


@pytest.mark.long  # a query that is started again
@plainly_on("apache")
def test_it_is_written_again_though_another_has_the_partitions(
    spark: SparkSession, broker: Broker, members: Members, unique: Unique, tmp_path: Path
) -> None:
    replay(spark, broker, members, unique, tmp_path, owned=True)


def replay(
    spark: SparkSession,
    broker: Broker,
    members: Members,
    unique: Unique,
    tmp_path: Path,
    *,
    owned: bool,
) -> None:
    """Write two batches, of which the second is not finished, and restart the query."""
    topic, group = broker.create_topic(unique("replay"), PARTITIONS), unique("replay")
    feed = broker.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.group.id": group,
        "kafka.heartbeat.interval.ms": "300",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    plan = Plan("replayed", str(tmp_path), options)

    def all_done() -> bool:
        failure = query.exception()
        assert failure is None, failure
        return broker.committed(group) == feed.ends()

    feed.write(100)
    query = start(spark, plan)
    wait_until(all_done)
    feed.write(100)
    wait_until(all_done)
    query.stop()
    batch = plan.checkpoint.unfinish()
    feed.write(100)
    if owned:
        settings = Settings(broker.bootstrap_servers, topic, group, "plain", "cooperative-sticky")
        plain = members.join(APIS["sync"], settings)
        wait_until(lambda: plain.owned == set(range(PARTITIONS)))

    query = start(spark, plan)
    wait_until(lambda: len(plan.ledger.attempts()[batch]) == 2 or query.exception())
    wait_until(all_done)
    query.stop()
    members.leave()
    plan.ledger.assert_replays_are_exact()
    readers = {"replayed": plan.ledger.reads()}
    readers |= {member.name: iter(member.reads) for member in members.all}
    found = account(feed.written, readers)
    found.assert_whole()
    assert found.shared == {}
    assert lag(broker, group) == dict.fromkeys(range(PARTITIONS), 0)
