"""Records of groups are moved between the in-process cluster and Apache Kafka, and they go on.

The members stay on the first cluster, too. So every response of the second one must be the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kohort.testing import Cluster
from tests.conformance.clusters import KAFKA_PROPERTIES, start_cluster
from tests.conformance.conftest import port_of
from tests.conformance.probe import differences
from tests.conformance.probes.upgrading import views
from tests.conformance.session import Session, Target
from tests.interop.moved_groups import (
    Life,
    create_topics,
    go_on,
    go_on_without_rebalance,
    live,
    records_of,
    return_to_classic,
    translated,
    write_to_cluster,
    write_to_kafka,
)
from tests.support.kafka_server import KafkaServer

pytestmark = [
    pytest.mark.long,  # nodes of Kafka that are started again
    pytest.mark.real_kafka,
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def server(start_kafka: Callable[..., KafkaServer]) -> Iterator[KafkaServer]:
    """Apache Kafka without an assignment interval, which can be restarted."""
    server = start_kafka(KAFKA_PROPERTIES)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """In-process cluster with the same settings."""
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture
def sessions(server: KafkaServer, own: Cluster) -> Iterator[tuple[Session, Session]]:
    """Sessions on Apache Kafka and on the in-process cluster, with equal names."""
    token = uuid.uuid4().hex[:6]
    ports = server.port, port_of(own.bootstrap_servers)
    both = [Session(Target(f"{port}", "127.0.0.1", port, token), "moved") for port in ports]
    for session in both:
        session.warm_up()
    yield both[0], both[1]
    for session in both:
        session.close()


def _seen(life: Life) -> dict[str, Any]:
    return {label: life.session.plain(value) for label, value in go_on(life)}


def _compare(original: Life, moved: Life) -> None:
    there, here = _seen(original), _seen(moved)
    found = [str(one) for one in differences(there, here)]
    assert not found, "\n".join(found[:20])


def test_a_restart_forgets_the_rebalance_after_a_downgrade(
    sessions: tuple[Session, Session], server: KafkaServer, own: Cluster
) -> None:
    lives = [return_to_classic(session) for session in sessions]
    before = [views(life.session, life.classic["old"].group)[2] for life in lives]
    assert before == [[("PreparingRebalance", "classic")]] * 2
    server.restart()
    own.kill_broker(1)
    own.start_broker(1)
    seen = []
    for life in lives:
        again = Session(life.session.target, "moved")
        again.warm_up()
        old = replace(life.classic["old"], session=again)
        moved = Life(again, {}, {"old": old}, life.topics)
        seen.append({label: again.plain(it) for label, it in go_on_without_rebalance(moved)})
        again.close()
    found = [str(one) for one in differences(seen[0], seen[1])]
    assert not found, "\n".join(found[:20])
    assert "Stable" in str(seen[0]["in the end"][2]), "no rebalance"


def test_kafka_goes_on_with_groups_of_the_cluster(
    sessions: tuple[Session, Session], server: KafkaServer
) -> None:
    apache, session = sessions
    life = live(session)
    create_topics(apache)
    other = Life(apache, {}, {}, life.topics)
    for partition, records in records_of(life).items():
        write_to_kafka(apache, partition, translated(records, life, other.ids))
    server.restart()
    again = Session(apache.target, "moved")
    again.warm_up()
    for label, name in life.topics.items():
        again.name_id(again.topic_id(name), label)
    _compare(life, life.moved(again))
    again.close()


def test_the_cluster_goes_on_with_groups_of_kafka(
    sessions: tuple[Session, Session], own: Cluster
) -> None:
    apache, session = sessions
    life = live(apache)
    create_topics(session)
    other = Life(session, {}, {}, life.topics)
    for partition, records in records_of(life).items():
        write_to_cluster(own, partition, translated(records, life, other.ids))
    _compare(life, life.moved(session))
