"""Streaming queries as members of a group, without Spark."""

from __future__ import annotations

from typing import Any

from kohort import KafkaConsumer
from kohort.testing import Cluster
from tests.spark_connector.reading import Query, options

GROUP = "billing"
DEADLINE = 30.0


def member_options(cluster: Cluster, **given: object) -> dict[str, str]:
    """Options of a query in the group, which hears of rebalances soon."""
    chosen = {
        "kafka_group_id": GROUP,
        "startingOffsets": "earliest",
        "kafka_heartbeat_interval_ms": 100,
    }
    return options(cluster, **(chosen | given))


def member(cluster: Cluster, **given: object) -> Query:
    """A query in the group, not begun."""
    return Query(member_options(cluster, **given))


def plain(cluster: Cluster, **given: Any) -> KafkaConsumer:
    """A consumer of the same group that is no query."""
    chosen = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
    }
    return KafkaConsumer("orders", **(chosen | given))


def committed(cluster: Cluster, group: str = GROUP) -> dict[int, int]:
    """Partition -> offset, of a group that reads one topic."""
    return {tp.partition: at.offset for tp, at in cluster.committed(group).items()}


def owned(query: Query) -> set[int]:
    """The partitions that the query may read now."""
    holdings = query.reader._driver._holdings
    with holdings.changed:
        return {tp.partition for tp in holdings.usable()}


def idle(query: Query) -> None:
    """Spark asking once more, with nothing to be found."""
    assert not query.trigger()
