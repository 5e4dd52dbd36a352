"""The brokers for the queries of this folder: the in-process cluster and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.members import Members
from tests.support.kafka_server import KafkaServer


@pytest.fixture(scope="session")
def _own_cluster() -> Iterator[Cluster]:
    settings = {"min_session_timeout_ms": 500}
    with Cluster(brokers=3, auto_create_topics=False, group_settings=settings) as running:
        yield running


@pytest.fixture
def ours(_own_cluster: Cluster) -> Broker:
    """The in-process cluster with three brokers, configured as the Apache Kafka is."""
    return Broker(_own_cluster.bootstrap_servers)


@pytest.fixture
def apache(kafka: KafkaServer) -> Broker:
    """The brokers of Apache Kafka."""
    return Broker(kafka.bootstrap_servers)


@pytest.fixture(params=["cluster", pytest.param("apache", marks=pytest.mark.real_kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """The in-process cluster, then Apache Kafka."""
    found: Broker = request.getfixturevalue("ours" if request.param == "cluster" else "apache")
    return found


@pytest.fixture
def members() -> Iterator[Members]:
    """The plain consumers that the test starts. They leave at its end."""
    with Members() as members:
        yield members
