"""``kohort.compat.confluent`` with confluent-kafka installed, as if it were not, and the original.

The original runs the same tests, so it proves that they expect what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

import kohort.compat.confluent as with_peer
from kohort.testing import Cluster
from tests.compat.kit import without_peer

MakeConsumer = Callable[..., Any]
CALLBACKS = ("error_cb", "on_commit", "stats_cb", "throttle_cb")


@pytest.fixture
def alone() -> Iterator[Any]:
    """The package, imported where confluent-kafka is not installed."""
    with without_peer("confluent_kafka", "kohort.compat.confluent") as package:
        yield package


@pytest.fixture(
    params=[
        "with confluent-kafka",
        "alone",
        pytest.param("confluent-kafka itself", marks=pytest.mark.long),
    ]
)
def client(request: pytest.FixtureRequest) -> Any:
    """The package in both cases, and confluent-kafka."""
    if request.param == "alone":
        return request.getfixturevalue("alone")
    return with_peer if request.param.startswith("with") else confluent_kafka


@pytest.fixture
def make(client: Any, cluster: Cluster, group: str) -> Iterator[MakeConsumer]:
    """Makes consumers that read from the beginning; they are closed after the test."""
    made: list[Any] = []

    def make_consumer(**options: Any) -> Any:
        properties = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            "enable.auto.commit": False,
            **{
                name if name in CALLBACKS else name.replace("_", "."): value
                for name, value in options.items()
            },
        }
        made.append(client.Consumer(properties))
        return made[-1]

    yield make_consumer
    for consumer in made:
        consumer.close()


@pytest.fixture
def own_topic(cluster: Cluster, group: str) -> str:
    """Name of a fresh topic of two partitions of kohort's cluster."""
    cluster.create_topic(f"topic-{group}", 2)
    return f"topic-{group}"
