"""The group protocol of a streaming query: ``kafka.group.protocol``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, GROUP, committed
from tests.spark_connector.reading import Query, options, produce


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster with short intervals of the consumer protocol."""
    with Cluster(
        topics={"orders": 3}, consumer_heartbeat_interval_ms=100, consumer_assignment_interval_ms=0
    ) as running:
        yield running


def _query(cluster: Cluster, **given: object) -> Query:
    return Query(
        options(cluster, **{"kafka_group_id": GROUP, "startingOffsets": "earliest", **given})
    )


@pytest.mark.parametrize(
    ("given", "protocol"), [({}, "consumer"), ({"kafka_group_protocol": "classic"}, "classic")]
)
def test_query_uses_the_chosen_protocol(
    cluster: Cluster, given: dict[str, object], protocol: str
) -> None:
    expected = produce(cluster, 5)
    query = _query(cluster, **given)
    query.start()
    assert query.trigger()
    assert cluster.group(GROUP).type == protocol
    assert not query.trigger()
    cluster.wait_until(lambda: committed(cluster) == {0: 5, 1: 0, 2: 0}, DEADLINE)
    query.stop()
    assert query.values() == expected
    assert not cluster.group(GROUP).members
