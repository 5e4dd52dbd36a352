"""Users with rights get the same responses from Apache Kafka and from the in-process cluster."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from kohort.testing import Authorization, Cluster, Security
from tests.conformance import rights
from tests.conformance.clusters import LONG_SESSIONS, OF_A_PROCESS
from tests.conformance.conftest import port_of
from tests.conformance.consumers import ConsumerMember
from tests.conformance.probe import differences
from tests.conformance.session import READY_S, Session, Target
from tests.conformance.wire import Connection
from tests.support.kafka_server import PROPERTIES
from tests.support.secure_kafka import SecureKafka, password_of

pytestmark = pytest.mark.long  # a secured Kafka for each kind of user

MIN_REQUESTS = 120
MIN_SETTINGS = 25


def observe(servers: str, sasl_servers: str, token: str) -> dict[str, dict[str, Any]]:
    """Return the responses to all requests under all sets of rights."""
    plain, sasl = port_of(servers), port_of(sasl_servers)
    session = Session(Target("", "127.0.0.1", plain, token), "rights")
    session.warm_up()
    visible, hidden = session.topic("visible"), session.topic("hidden")
    group = session.group("g")
    ids = {name: session.topic_id(name) for name in (visible, hidden)}
    names = rights.Names(visible, hidden, group, ids)
    session.transactional_id("visible-transaction")
    both = ConsumerMember(session, names.consumers, "m", [visible, hidden])
    deadline = time.monotonic() + READY_S
    while both.join().error_code or not both.target:
        assert time.monotonic() < deadline, "the consumer group has no coordinator"

    def connect() -> Connection:
        connection = Connection("127.0.0.1", sasl, rights.USER)
        return rights.log_in(connection, rights.USER, password_of(rights.USER))

    side = rights.Side(session.main, connect, sasl)
    asked, seen = list(rights.requests(names)), {}
    assert len(asked) >= MIN_REQUESTS
    for label, given in rights.settings(names).items():
        side.grant(given)
        seen[label] = rights.observe(side, names, asked)
    assert len(seen) >= MIN_SETTINGS
    side.grant([])
    session.close()
    return seen


@pytest.mark.real_kafka
@pytest.mark.timeout(600)
def test_responses_to_users_with_rights_are_the_same(patient_secure_kafka: SecureKafka) -> None:
    token = uuid.uuid4().hex[:6]
    server = patient_secure_kafka
    kafka = observe(server.bootstrap_servers, server.bootstrap_servers_of("SASL_PLAINTEXT"), token)
    security = Security(
        listeners=["PLAINTEXT", "SASL_PLAINTEXT"],
        users={rights.USER: password_of(rights.USER)},
        authorization=Authorization(super_users=["User:ANONYMOUS"]),
    )
    configs = {name: PROPERTIES[name] for name in PROPERTIES.keys() - OF_A_PROCESS}
    configs |= LONG_SESSIONS
    with Cluster(configs=configs, security=security) as cluster:
        ours = observe(
            cluster.bootstrap_servers, cluster.bootstrap_servers_of("SASL_PLAINTEXT"), token
        )
    found = [
        f"{label}: {difference}"
        for label, answers in kafka.items()
        for difference in differences(answers, ours[label])
    ]
    assert not found, "\n".join(found[:20])
