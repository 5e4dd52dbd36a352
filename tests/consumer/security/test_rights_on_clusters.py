"""A user without permissions, on Apache Kafka and on the in-process cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kohort.protocol.messages import CreateAclsRequest, DeleteAclsRequest
from kohort.testing import Authorization, Cluster, Security
from tests.broker.raw import Raw
from tests.consumer.kit import PATIENCE
from tests.support.secure_kafka import SecureKafka, password_of
from tests.support.topics import create_topic

USER = "bob"
DESCRIBE, READ = 8, 3
TOPIC, GROUP = 2, 3


class Servers(NamedTuple):
    """Addresses for the super user and for the user."""

    plain: str
    sasl: str

    def grant(self, kind: int, name: str, operation: int) -> None:
        """Allow this operation to the user."""
        creation = CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            principal=f"User:{USER}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        with Raw(self.plain) as raw:
            created = raw.ask(CreateAclsRequest(creations=[creation]), 3)
        assert created.results[0].error_code == 0

    def revoke(self, kind: int, name: str) -> None:
        """Revoke all permissions on a resource from the user."""
        chosen = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            principal_filter=f"User:{USER}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        with Raw(self.plain) as raw:
            assert raw.ask(DeleteAclsRequest(filters=[chosen]), 3).filter_results[0].matching_acls


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=pytest.mark.real_kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Both clusters. The user has no permissions on them yet."""
    if request.param == "kafka":
        kafka: SecureKafka = request.getfixturevalue("secure_kafka")
        yield Servers(kafka.bootstrap_servers, kafka.bootstrap_servers_of("SASL_PLAINTEXT"))
        return
    security = Security(
        listeners=["PLAINTEXT", "SASL_PLAINTEXT"],
        users={USER: password_of(USER)},
        authorization=Authorization(super_users=["User:ANONYMOUS"]),
    )
    with Cluster(security=security) as cluster:
        yield Servers(cluster.bootstrap_servers, cluster.bootstrap_servers_of("SASL_PLAINTEXT"))


def fill(servers: Servers, topic: str) -> str:
    from confluent_kafka import Producer

    create_topic(servers.plain, topic, 1)
    producer = Producer({"bootstrap.servers": servers.plain})
    producer.produce(topic, topic.encode(), partition=0)
    producer.flush(10)
    return topic


def poll_until(
    consumer: KafkaConsumer, holds: Callable[[list[str], list[KafkaError]], bool]
) -> tuple[list[str], list[KafkaError]]:
    """Poll until the predicate holds for the topics that were read and the errors."""
    topics: list[str] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + PATIENCE
    while not holds(topics, errors):
        assert time.monotonic() < deadline, (topics, errors)
        try:
            for tp, records in consumer.poll(timeout_ms=100).items():
                topics += [tp.topic] * len(records)
        except KafkaError as error:
            errors.append(error)
    return topics, errors


def test_rights_are_reported_and_taken_when_granted(
    servers: Servers, unique: Callable[[str], str]
) -> None:
    a, b, group = fill(servers, unique("a")), fill(servers, unique("b")), unique("g")
    servers.grant(TOPIC, a, READ)
    servers.grant(TOPIC, b, DESCRIBE)
    with KafkaConsumer(
        a,
        b,
        bootstrap_servers=servers.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=password_of(USER),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
    ) as consumer:
        _, errors = poll_until(consumer, lambda _, errors: bool(errors))
        assert isinstance(errors[0], GroupAuthorizationFailedError)
        assert (errors[0].group_id, errors[0].operation) == (group, "DESCRIBE")
        assert f"{USER} needs DESCRIBE on group {group}" in str(consumer.explain())
        servers.grant(GROUP, group, READ)
        topics, errors = poll_until(
            consumer,
            lambda topics, errors: (
                a in topics and any(isinstance(e, TopicAuthorizationFailedError) for e in errors)
            ),
        )
        assert topics == [a]
        refused = [e for e in errors if isinstance(e, TopicAuthorizationFailedError)]
        assert [(set(e.topics), e.operation) for e in refused] == [({b}, "READ")]
        assert f"{USER} needs READ on topic {b}" in str(consumer.explain())
        servers.grant(TOPIC, b, READ)
        topics, errors = poll_until(consumer, lambda topics, _: b in topics)
        assert errors == []
        servers.revoke(TOPIC, b)
        deadline = time.monotonic() + PATIENCE
        while True:  # until the broker knows the change
            assert time.monotonic() < deadline
            try:
                consumer.commit()
            except TopicAuthorizationFailedError as error:
                assert error.topics == frozenset({b})
                assert set(error.committed) == {TopicPartition(a, 0)}
                break
