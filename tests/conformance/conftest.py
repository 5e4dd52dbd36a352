"""Fixtures: both clusters, and the results of the probes on them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kohort.testing import Cluster
from tests.conformance.aged import after_the_restart, before_the_restart
from tests.conformance.clusters import (
    KAFKA_PROPERTIES,
    LONG_SESSIONS,
    VARIANTS,
    Variant,
    start_cluster,
    start_secured_cluster,
)
from tests.conformance.probe import PROBES, Probe
from tests.conformance.runner import Runner
from tests.conformance.session import SecondBroker, Secured, Session, Target
from tests.conformance.wire import EXPIRY_MS
from tests.support.jars import jars
from tests.support.kafka_server import KafkaServer
from tests.support.plugin import SERVERS
from tests.support.secure_kafka import PROTOCOLS, SecureKafka

THREADS = 80


@pytest.fixture(scope="module")
def targets(start_kafka: Callable[..., KafkaServer]) -> Iterator[tuple[Target, Target]]:
    """Apache Kafka and the in-process cluster, both ready for all probes."""
    kafka = start_kafka(KAFKA_PROPERTIES)
    token = uuid.uuid4().hex[:6]
    with start_cluster() as cluster:
        both = (
            Target("Apache Kafka", "127.0.0.1", kafka.port, token),
            Target(
                "kohort.testing",
                "127.0.0.1",
                port_of(cluster.bootstrap_servers),
                token,
                compact=cluster.compact,
            ),
        )
        for target in both:
            before_the_restart(target)
        kafka.restart()
        cluster.kill_broker(1)
        cluster.start_broker(1)
        for target in both:
            after_the_restart(target)
            session = Session(target, "warm-up")
            session.warm_up()
            session.close()
        yield both
    kafka.kill()


@pytest.fixture(scope="session")
def patient_secure_kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SecureKafka]:
    """Secured Apache Kafka whose logins last a minute, and members of groups ten."""
    folder = tmp_path_factory.mktemp("patient-secure-kafka")
    server = SecureKafka(jars(), folder, LONG_SESSIONS, reauth_ms=EXPIRY_MS)
    pytestconfig.stash[SERVERS].append(server)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def secured_targets(patient_secure_kafka: SecureKafka) -> Iterator[tuple[Target, Target]]:
    """Secured Apache Kafka and secured in-process cluster."""
    kafka = patient_secure_kafka
    token = uuid.uuid4().hex[:6]
    with start_secured_cluster(kafka) as cluster:
        yield (
            _secured("Apache Kafka", kafka, kafka.bootstrap_servers_of, token),
            _secured("kohort.testing", kafka, cluster.bootstrap_servers_of, token),
        )


def _secured(name: str, kafka: SecureKafka, servers: Callable[[str], str], token: str) -> Target:
    ports = {listener: port_of(servers(listener)) for listener in PROTOCOLS}
    secured = Secured(ports, kafka.certificates, kafka.signing_key)
    return Target(name, "127.0.0.1", ports["PLAINTEXT"], token, secured=secured)


@pytest.fixture(scope="module")
def secured_runner(
    secured_targets: tuple[Target, Target], request: pytest.FixtureRequest
) -> Iterator[Runner]:
    """Runner for the probes of TLS, logins and rights."""
    with ThreadPoolExecutor(THREADS) as pool:
        runner = Runner(*secured_targets, pool)
        for probe in _selected(request.session.items):
            if probe.secured:  # they wait more than they work
                runner.start(probe)
        yield runner


@pytest.fixture(scope="module")
def runner(targets: tuple[Target, Target], request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Runner for the probes of this test run. Those that wait for long start first and together."""
    with ThreadPoolExecutor(THREADS) as pool:
        runner = Runner(*targets, pool)
        slow = [
            probe
            for probe in _selected(request.session.items)
            if probe.slow and not probe.secured and not probe.variant
        ]
        for probe in slow:
            runner.start(probe)
        for probe in slow:
            runner.results(probe)
        yield runner


@pytest.fixture(scope="module")
def variant_runners(
    start_kafka: Callable[..., KafkaServer], request: pytest.FixtureRequest
) -> Iterator[dict[str, Runner]]:
    """Runners for the probes of further pairs of clusters, by the name of the variant."""
    needed = {probe.variant for probe in _selected(request.session.items)} - {""}
    token = uuid.uuid4().hex[:6]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))

        def start(name: str) -> tuple[Target, Target]:
            first, second = _start_kafka_of(VARIANTS[name], start_kafka, stack)
            cluster = stack.enter_context(start_cluster(name))
            return (
                Target("Apache Kafka", "127.0.0.1", first.port, token, second=second),
                _target_of(cluster, token),
            )

        runners = {}
        for name, both in zip(needed, pool.map(start, needed), strict=True):
            runners[name] = Runner(*both, pool)
            for probe in _selected(request.session.items):
                if probe.cold and probe.variant == name:
                    runners[name].results(probe)
            for target in both:
                session = Session(target, "warm-up")
                session.warm_up()
                session.close()
            for probe in _selected(request.session.items):
                if probe.slow and probe.variant == name:
                    runners[name].start(probe)
        yield runners


def _start_kafka_of(
    variant: Variant, start_kafka: Callable[..., KafkaServer], stack: ExitStack
) -> tuple[KafkaServer, SecondBroker | None]:
    properties = {**KAFKA_PROPERTIES, **variant.properties}
    features = {"group.version": variant.group_version} if variant.group_version != 1 else None
    first = start_kafka(properties, features)
    stack.callback(first.kill)
    if variant.brokers == 1:
        return first, None
    second = start_kafka(properties, first=first)
    stack.callback(second.kill)
    return first, SecondBroker(second.port, second.stop, second.start)


def _target_of(cluster: Cluster, token: str) -> Target:
    first, *others = [port_of(server) for server in cluster.bootstrap_servers.split(",")]
    second = [
        SecondBroker(
            port,
            lambda: cluster.kill_broker(2),
            lambda: cluster.start_broker(2),
            lambda api, error: cluster.fail(api, error, times=1),
        )
        for port in others
    ]
    return Target("kohort.testing", "127.0.0.1", first, token, second=next(iter(second), None))


def _selected(items: Sequence[pytest.Item]) -> list[Probe]:
    """Return the probes that the selected tests need."""
    names = [
        item.callspec.params.get("name")
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    return [PROBES[name] for name in names if name in PROBES]


def port_of(server: str) -> int:
    """Return the port of ``host:port``."""
    return int(server.rpartition(":")[2])
