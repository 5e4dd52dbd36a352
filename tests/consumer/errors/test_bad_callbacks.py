"""Listeners and assignors of the user that raise: a typed error and no spin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kohort import ConsumerRebalanceListener, TopicPartition
from kohort.coordinator_client.assignors import RangeAssignor
from kohort.errors import (
    AssignorError,
    RebalanceListenerError,
)
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import (
    poll_error,
    poll_past,
    poll_quietly,
    read,
    values,
)


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    """Default options. They must not cost CPU."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}


class Poisoned(Exception):
    pass


def test_a_raising_listener_does_not_spin(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            raise Poisoned

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Failing())
    poll_error(consumer, RebalanceListenerError)
    assert poll_quietly(consumer) == []
    cluster.produce(topic, [b"a"])
    assert values(read(consumer, 1)) == [b"a"]


def test_assignor_error_is_raised_and_retried_without_busy_loop(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    class Failing(RangeAssignor):
        failing = True

        def assign(self, cluster: Any, subscriptions: Mapping[str, Any]) -> Any:
            if self.failing:
                raise Poisoned("no idea")
            return super().assign(cluster, subscriptions)

    assignor = Failing()
    consumer = make(topic, group_id=group, partition_assignment_strategy=[assignor])
    error = poll_error(consumer, AssignorError)
    assert "no idea" in str(error)
    assert {type(each) for each in poll_quietly(consumer)} == {AssignorError}
    assignor.failing = False
    poll_past(consumer, AssignorError, consumer.assignment)
