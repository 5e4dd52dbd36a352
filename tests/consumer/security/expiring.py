"""Groups that read under load while sessions and tokens expire and secrets are replaced."""

from __future__ import annotations

import heapq
import itertools
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kohort import KafkaConsumer
from kohort.listeners import ConsumerRebalanceListener
from kohort.security.sasl._oauthbearer import OAuthBearerExchange
from kohort.testing import Cluster, unsecured_token
from tests.support.kafka_server import KafkaServer
from tests.support.secure_kafka import SecureKafka

USER, PASSWORD, NEW_PASSWORD = "admin", "admin-secret", "another-secret"
CLIENT = "client"
"""Common name (CN) of the client's certificate."""
PARTITIONS = 4
TOKEN_S = 5.0
SESSION_MS = 4_000
TICK_S = 0.02
AT_ONCE = 5
"""Records of a topic in each tick."""
VALUE = b"%010d" + b"." * 990
VISIT_EVERY_S, VISIT_S = 6.0, 4.0
DRAIN_S = 90.0


class Site(Protocol):
    """A cluster with SASL_SSL sessions of SESSION_MS, and the operations of its administrator."""

    cafile: str
    certfile: str
    keyfile: str

    def bootstrap_servers_of(self, listener: str) -> str: ...

    def create_topic(self, topic: str) -> None: ...

    def produce(self, topic: str, partition: int, values: list[bytes]) -> None: ...

    def set_password(self, password: str) -> None: ...

    def renew_certificates(self) -> None: ...


class InProcess:
    """A site in the cluster of kohort.testing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap_servers_of = cluster.bootstrap_servers_of
        self.cafile = cluster.ssl_cafile
        certificate = cluster.client_certificate(CLIENT)
        self.certfile, self.keyfile = certificate.certfile, certificate.keyfile

    def create_topic(self, topic: str) -> None:
        self._cluster.create_topic(topic, PARTITIONS)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> None:
        self._cluster.produce(topic, values, partition=partition)

    def set_password(self, password: str) -> None:
        self._cluster.set_password(USER, password)

    def renew_certificates(self) -> None:
        self._cluster.renew_certificates()
        self._cluster.client_certificate(CLIENT)


class OnKafka:
    """A site in Apache Kafka."""

    def __init__(self, kafka: SecureKafka) -> None:
        self._kafka = kafka
        self.bootstrap_servers_of = kafka.bootstrap_servers_of
        self.cafile = kafka.certificates.ca
        self.certfile = str(kafka.certificates.path("client.pem"))
        self.keyfile = str(kafka.certificates.path("client.key"))
        quiet: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 2,
        }
        self._admin = AdminClient(quiet)
        self._producer = Producer(quiet | {"linger.ms": 0})

    def create_topic(self, topic: str) -> None:
        KafkaServer.create_topic(self._kafka, topic, PARTITIONS)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(20) == 0

    def set_password(self, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4097)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for future in self._admin.alter_user_scram_credentials([change]).values():
            future.result(60)
        self._wait(lambda: self._iterations() == 4097)

    def _iterations(self) -> int:
        described: Any = self._admin.describe_user_scram_credentials([USER])
        found = described[USER].result(60)
        return next(
            int(each.iterations)
            for each in found.scram_credential_infos
            if each.mechanism == ScramMechanism.SCRAM_SHA_512
        )

    def renew_certificates(self) -> None:
        before = self._shown()
        certificates = self._kafka.certificates
        certificates.renew(CLIENT)
        certificates.renew("server")
        changes = [
            ConfigEntry(
                f"listener.name.{listener}.ssl.keystore.location",
                str(certificates.path("server.p12")),
                incremental_operation=AlterConfigOpType.SET,
            )
            for listener in ("sasl_ssl", "mtls")
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(60)
        self._wait(lambda: self._shown() != before)

    def _shown(self) -> str:
        host, _, port = self.bootstrap_servers_of("SASL_SSL").rpartition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=10)

    def _wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline


class Passwords:
    """Credentials that wait while the password changes."""

    def __init__(self) -> None:
        self._password = PASSWORD
        self._lock = threading.Lock()

    def __call__(self) -> tuple[str, str]:
        with self._lock:
            return USER, self._password

    def rotate(self, site: Site) -> None:
        with self._lock:
            site.set_password(NEW_PASSWORD)
            self._password = NEW_PASSWORD


class _Rebalances(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.count = 0

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.count += 1

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.count += 1


class Group:
    """A permanent member, temporary members, and the records that they read."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.topic = f"{name}-topic"
        self.sent = 0
        self.read: Counter[int] = Counter()
        self.gaps: list[tuple[float, float]] = []
        """Seconds between two polls of the permanent member, and seconds since its start."""
        self.rebalances = _Rebalances()
        self.visits = 0
        self._options = options
        self.sent_all, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def consumer(self) -> KafkaConsumer:
        return KafkaConsumer(group_id=self.name, auto_offset_reset="earliest", **self._options)

    def stay(self) -> None:
        """Read until end() is called."""
        last, began = None, time.monotonic()
        with self.consumer() as consumer:
            consumer.subscribe([self.topic], listener=self.rebalances)
            while not self._over.is_set():
                if self._take(consumer):
                    now = time.monotonic()
                    if last is not None and not self.sent_all.is_set():
                        self.gaps.append((now - last, now - began))
                    last = now

    def visit(self, pause: float, end: float) -> None:
        """Join and leave again and again until the end."""
        while not self._over.wait(pause) and time.monotonic() < end - VISIT_S:
            self.visits += 1
            until = time.monotonic() + VISIT_S
            with self.consumer() as consumer:
                consumer.subscribe([self.topic])
                while time.monotonic() < until:
                    self._take(consumer)
            pause = VISIT_EVERY_S - VISIT_S

    def _take(self, consumer: KafkaConsumer) -> bool:
        parts = consumer.poll(timeout_ms=500)
        found = [int((each.value or b"")[:10]) for part in parts.values() for each in part]
        with self._lock:
            self.read.update(found)
        return bool(found)

    def end(self) -> None:
        """End the permanent member when it has read everything, or after DRAIN_S."""
        deadline = time.monotonic() + DRAIN_S
        while len(self.read) < self.sent and time.monotonic() < deadline:
            time.sleep(0.05)  # the counter is read again after this pause
        self._over.set()

    @property
    def longest(self) -> list[tuple[float, float]]:
        return heapq.nlargest(3, self.gaps)

    @property
    def lost(self) -> int:
        return len(set(range(self.sent)) - self.read.keys())

    @property
    def twice(self) -> int:
        return sum(count - 1 for count in self.read.values())


class _Lines(logging.Handler):
    """A log handler that counts re-logins and keeps the lines worth a warning."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.renewed = 0
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.renewed += text.startswith("renewed the SASL session")
        if record.levelno >= logging.WARNING or "lost with its connection" in text:
            self.warnings.append(f"{record.name}: {text}")


@dataclass
class Report:
    """The figures of a run."""

    groups: list[Group] = field(default_factory=list)
    least_left: list[float] = field(default_factory=list)
    """Remaining seconds of each token when it was sent."""
    lines: _Lines = field(default_factory=_Lines)
    stall: float = 0.0
    """Longest time in seconds that the machine let a thread wait."""

    def watch(self, over: threading.Event) -> None:
        """Note stalls of the machine until the end of the run."""
        while not over.is_set():
            begun = time.monotonic()
            over.wait(TICK_S)
            self.stall = max(self.stall, time.monotonic() - begun - TICK_S)

    def __str__(self) -> str:
        rows = [
            f"{group.name}: {group.sent:,} records, {group.lost} lost, {group.twice} twice, "
            f"{group.visits} visits, {group.rebalances.count} changes of the assignment, "
            "largest gaps " + ", ".join(f"{gap:.3f} s at {at:.1f} s" for gap, at in group.longest)
            for group in self.groups
        ]
        return "\n".join(
            [
                *rows,
                f"{self.lines.renewed} re-logins, {len(self.least_left)} tokens sent, least "
                f"remaining life {min(self.least_left):.2f} s, warnings: {self.lines.warnings}, "
                f"a thread waited for up to {self.stall:.2f} s",
            ]
        )


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Report]:
    """Count re-logins and warnings, and note the remaining life of each token that is sent."""
    report = Report()
    first = OAuthBearerExchange.first

    def noted(self: OAuthBearerExchange) -> bytes:
        report.least_left.append(self.token.left(time.time()) or 0.0)
        return first(self)

    monkeypatch.setattr(OAuthBearerExchange, "first", noted)
    logger, transport = logging.getLogger("kohort"), logging.getLogger("kohort.transport")
    level = transport.level
    logger.addHandler(report.lines)
    transport.setLevel(logging.DEBUG)
    try:
        yield report
    finally:
        transport.setLevel(level)
        logger.removeHandler(report.lines)


def options(site: Site, passwords: Passwords) -> dict[str, dict[str, Any]]:
    """Return the options of each group by its name. "plain" is without security."""
    tls = {"ssl_cafile": site.cafile}
    login = tls | {
        "bootstrap_servers": site.bootstrap_servers_of("SASL_SSL"),
        "security_protocol": "SASL_SSL",
    }
    return {
        "plain": {"bootstrap_servers": site.bootstrap_servers_of("PLAINTEXT")},
        "scram": login | {"sasl_mechanism": "SCRAM-SHA-512", "sasl_credentials": passwords},
        "tokens": login
        | {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: unsecured_token(USER, TOKEN_S),
        },
        "certificates": tls
        | {
            "bootstrap_servers": site.bootstrap_servers_of("MTLS"),
            "security_protocol": "SSL",
            "ssl_certfile": site.certfile,
            "ssl_keyfile": site.keyfile,
        },
    }


def run(site: Site, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Read with all groups. Change the password after a third, certificates after a half."""
    passwords = Passwords()
    with watched(monkeypatch) as report:
        groups = [Group(name, given) for name, given in options(site, passwords).items()]
        report.groups = groups
        for group in groups:
            site.create_topic(group.topic)
        end = time.monotonic() + seconds
        members = [threading.Thread(target=group.stay) for group in groups]
        for number, group in enumerate(groups):
            pause = 1.0 + number * VISIT_EVERY_S / len(groups)
            members.append(threading.Thread(target=group.visit, args=(pause, end)))
        changes = [
            threading.Timer(seconds / 3, passwords.rotate, (site,)),
            threading.Timer(seconds / 2, site.renew_certificates),
        ]
        over = threading.Event()
        watch = threading.Thread(target=report.watch, args=(over,))
        for thread in [watch, *members, *changes]:
            thread.start()
        for tick in itertools.count():
            if time.monotonic() > end:
                break
            for group in groups:
                values = [VALUE % (group.sent + number) for number in range(AT_ONCE)]
                site.produce(group.topic, tick % PARTITIONS, values)
                group.sent += AT_ONCE
            time.sleep(TICK_S)  # pace of the producer
        for group in groups:
            group.sent_all.set()
        for group in groups:
            group.end()
        for thread in [*members, *changes]:
            thread.join(60)
            assert not thread.is_alive()
        over.set()
        watch.join()
    return report
