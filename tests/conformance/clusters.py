"""The two clusters that are compared, with equal settings, and the modules of the probes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kohort.broker.security import check_claims
from kohort.testing import Authorization, CertificateFiles, Cluster, Listener, Security
from tests.conformance.wire import EXPIRY_MS, FAR_MS
from tests.support.kafka_server import PROPERTIES
from tests.support.secure_kafka import PROTOCOLS as PROTOCOL_OF
from tests.support.secure_kafka import USERS, SecureKafka, password_of
from tests.support.tokens import AUDIENCE, ISSUER, SigningKey

MAX_GROUP_SIZE = 5
INITIAL_DELAY_MS = 100
MIN_SESSION_MS = 500
RETENTION_CHECK_MS = 300
MAX_CONSUMER_GROUP_SIZE = 6

LONG_SESSIONS = {
    "group.consumer.max.session.timeout.ms": str(FAR_MS),
    "group.consumer.session.timeout.ms": str(FAR_MS),
}
"""Properties of nodes whose members of consumer groups are silent for as long as a test takes."""
KAFKA_PROPERTIES = {
    **LONG_SESSIONS,
    "auto.create.topics.enable": "true",
    # A machine that stalls for a while must not cost the broker its leaders.
    "broker.session.timeout.ms": "60000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.assignment.interval.ms": str(FAR_MS),
    "group.consumer.max.size": str(MAX_CONSUMER_GROUP_SIZE),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": str(MIN_SESSION_MS),
    "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
    "group.max.size": str(MAX_GROUP_SIZE),
    "group.min.session.timeout.ms": str(MIN_SESSION_MS),
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": str(RETENTION_CHECK_MS),
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
"""Further properties of the node: short times, and limits that can be reached."""


@dataclass(frozen=True)
class Variant:
    """Further pair of clusters: properties that differ, and the version of ``group.version``.

    It has one or two brokers.
    """

    properties: Mapping[str, str]
    group_version: int = 1
    brokers: int = 1


_POLICY = "group.consumer.migration.policy"
VARIANTS = {
    "upgrade": Variant({_POLICY: "upgrade", "group.consumer.max.size": "3"}),
    "downgrade": Variant({_POLICY: "downgrade", "group.max.size": "2"}),
    "disabled": Variant({_POLICY: "disabled"}),
    "off": Variant({}, group_version=0),
    "two": Variant({"offsets.topic.replication.factor": "2"}, brokers=2),
}
"""Pairs of clusters with other migration policies, without the consumer protocol, and with two
brokers each.
"""

OF_A_PROCESS = {
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "log.initial.task.delay.ms",
    "process.roles",
}
"""Configs of a broker in a separate process: its listeners, and those that Kafka hides."""

SECURED_CONFIGS = {"auto.create.topics.enable": False, **LONG_SESSIONS}

MODULES = (
    "versions",
    "metadata",
    "coordinators",
    "group_matrix",
    "joining",
    "rejoining",
    "syncing",
    "leaving",
    "listing",
    "offsets",
    "list_offsets",
    "fetching",
    "epochs",
    "compaction",
    "cleaning",
    "sessions",
    "producing",
    "idempotence",
    "topics",
    "settings",
    "broker_settings",
    "acls",
    "consumer_heartbeats",
    "reconciling",
    "consumer_static",
    "epoch_offsets",
    "upgrading",
    "refused_upgrades",
    "unowned",
    "mixed_groups",
    "migration_policies",
    "consumer_listing",
    "regexes",
    "group_configs",
    "group_lives",
    "coordinator_errors",
    "share_groups",
    "replicas",
    "transactional_producers",
    "transactional_data",
    "transactional_offsets",
    "logins",
    "mechanisms",
    "tls",
    "users",
)


def start_cluster(name: str = "") -> Cluster:
    """Return an in-process cluster with the settings of Apache Kafka. It is not started yet.

    ``name`` is that of a variant, or "".
    """
    variant = VARIANTS.get(name, Variant({}))
    configs = {**PROPERTIES, **KAFKA_PROPERTIES, **variant.properties}
    return Cluster(
        brokers=variant.brokers,
        configs={name: configs[name] for name in configs.keys() - OF_A_PROCESS},
        group_version=variant.group_version,
    )


def start_secured_cluster(kafka: SecureKafka) -> Cluster:
    """Return an in-process cluster with the listeners, users and certificates of a
    secured Kafka.
    """
    key, files = kafka.signing_key, kafka.certificates
    rules = "RULE:^CN=([^,]*).*$/$1/,DEFAULT"

    def listener(name: str) -> Listener:
        return Listener(
            PROTOCOL_OF[name],
            name,
            client_auth="required" if name == "MTLS" else "none",
            principal_rules=rules if name == "MTLS" else "DEFAULT",
            mechanisms=["OAUTHBEARER"] if name == "OAUTH" else None,
            tokens=partial(check_signed, key) if name == "OAUTH" else None,
            session_lifetime_ms=EXPIRY_MS if name == "REAUTH" else None,
        )

    security = Security(
        [listener(name) for name in PROTOCOL_OF],
        {user: password_of(user) for user in USERS},
        certificates=CertificateFiles(
            files.ca, str(files.path("server.pem")), str(files.path("server.key"))
        ),
        failed_authentication_delay_ms=100,
        authorization=Authorization(super_users=["User:ANONYMOUS", "User:admin"]),
    )
    return Cluster(security=security, configs=dict(SECURED_CONFIGS))


def check_signed(key: SigningKey, token: str, now: float) -> tuple[str, float]:
    """Check a token of ``tests.support.tokens`` as Kafka does with its JWKS."""
    return check_claims(key.verified(token), now, AUDIENCE, ISSUER)


def load_probes() -> None:
    """Import every module of probes, in the order of the table."""
    for name in MODULES:
        importlib.import_module(f"tests.conformance.probes.{name}")
