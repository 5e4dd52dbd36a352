"""Both clusters: kohort's own, and Apache Kafka where the machine can run it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.support.kafka_server import KafkaServer

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One broker of kohort's own for the whole run; sessions may be short."""
    with Cluster(
        auto_create_topics=False, group_settings={"min_session_timeout_ms": 50}
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def own_broker(cluster: Cluster) -> Broker:
    """kohort's own cluster."""
    return Broker(cluster.bootstrap_servers)


@pytest.fixture
def apache(kafka: KafkaServer) -> Broker:
    """Apache Kafka."""
    return Broker(kafka.bootstrap_servers)


@pytest.fixture(params=["cluster", pytest.param("apache", marks=pytest.mark.real_kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each of the two clusters."""
    name = "own_broker" if request.param == "cluster" else "apache"
    found: Broker = request.getfixturevalue(name)
    return found


@pytest.fixture
def topic(broker: Broker) -> str:
    """Name of a fresh topic of two partitions."""
    return broker.create_topic(f"compat-{next(_NUMBERS)}-{uuid.uuid4().hex[:8]}", 2)


@pytest.fixture
def group() -> str:
    """Name of a fresh group."""
    return f"compat-{uuid.uuid4().hex[:8]}"
