"""Fixtures for tests of third-party software against kohort."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.franz import build
from tests.interop.members import Members
from tests.interop.peers import HEARTBEAT_MS, SESSION_MS
from tests.support.kafka_server import KafkaServer

CONSUMER_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}
"""Kafka's settings for members by the consumer protocol, which classic members choose."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """In-process cluster of three brokers, shared by the whole run, configured as
    Apache Kafka is.
    """
    with Cluster(
        brokers=3, auto_create_topics=False, group_settings={"min_session_timeout_ms": 500}
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _cluster_broker(cluster: Cluster) -> Broker:
    return Broker(cluster.bootstrap_servers)


@pytest.fixture
def apache(kafka: KafkaServer) -> Broker:
    """Apache Kafka."""
    return Broker(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def _quick_kafka(start_kafka: Callable[..., KafkaServer]) -> KafkaServer:
    return start_kafka(CONSUMER_GROUPS)


@pytest.fixture
def quick_kafka(_quick_kafka: KafkaServer) -> KafkaServer:
    """Apache Kafka whose consumer groups have short sessions and heartbeat intervals."""
    _quick_kafka.start()
    return _quick_kafka


@pytest.fixture
def quick_apache(quick_kafka: KafkaServer) -> Broker:
    """Apache Kafka whose consumer groups have short sessions and heartbeat intervals."""
    return Broker(quick_kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def _quick_cluster() -> Iterator[Broker]:
    with Cluster(
        brokers=3,
        auto_create_topics=False,
        group_settings={
            "min_session_timeout_ms": 500,
            "consumer_session_timeout_ms": SESSION_MS,
            "consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        },
    ) as cluster:
        yield Broker(cluster.bootstrap_servers)


@pytest.fixture(params=["cluster", pytest.param("apache", marks=pytest.mark.real_kafka)])
def quick_broker(request: pytest.FixtureRequest) -> Broker:
    """Cluster whose consumer groups have short sessions and heartbeat intervals: the in-process
    one, then Apache Kafka.
    """
    name = "_quick_cluster" if request.param == "cluster" else "quick_apache"
    found: Broker = request.getfixturevalue(name)
    return found


@pytest.fixture(params=["cluster", pytest.param("apache", marks=pytest.mark.real_kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """In-process cluster, then Apache Kafka. A test that uses this compares the two."""
    name = "_cluster_broker" if request.param == "cluster" else "apache"
    found: Broker = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Program of franz-go, built with the versions that go.sum pins."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture
def members() -> Iterator[Members]:
    """Members that the test starts. They leave at its end."""
    with Members() as members:
        yield members
