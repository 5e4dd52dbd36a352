"""Short sessions and tokens, rotated passwords and certificates, in real time and under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kohort.testing import Cluster, Listener, Security
from tests.consumer.security.expiring import (
    CLIENT,
    PASSWORD,
    SESSION_MS,
    TOKEN_S,
    USER,
    InProcess,
    OnKafka,
    Report,
    Site,
    run,
)
from tests.support.jars import jars
from tests.support.plugin import SERVERS
from tests.support.secure_kafka import MECHANISMS, SecureKafka

LONGEST_GAP_S = 0.5
CALM_S = 0.05
"""Seconds that a thread waits for a machine that has time for all."""
LISTENERS = ("PLAINTEXT", "SASL_SSL", Listener("SSL", "MTLS", client_auth="required"))


@pytest.fixture
def in_process() -> Iterator[Site]:
    security = Security(LISTENERS, {USER: PASSWORD}, session_lifetime_ms=SESSION_MS)
    with Cluster(brokers=2, security=security) as cluster:
        yield InProcess(cluster)


@pytest.fixture
def on_kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Site]:
    properties = {
        f"listener.name.sasl_ssl.{mechanism.lower()}.connections.max.reauth.ms": str(SESSION_MS)
        for mechanism in MECHANISMS
    }
    properties["super.users"] = f"User:ANONYMOUS;User:{USER};User:{CLIENT}"
    properties["offsets.topic.num.partitions"] = "4"
    server = SecureKafka(jars(), tmp_path_factory.mktemp("expiring"), properties)
    pytestconfig.stash[SERVERS].append(server)
    server.start()
    site = OnKafka(server)
    yield site
    site.flush()
    pytestconfig.stash[SERVERS].remove(server)
    server.kill()


def check(report: Report, record_property: Callable[[str, object], None]) -> None:
    print(report)
    record_property("figures", str(report))
    assert [(group.name, group.lost, group.twice) for group in report.groups] == [
        (group.name, 0, 0) for group in report.groups
    ]
    if report.stall > CALM_S:
        return  # then sessions do end, and test_login_renewal.py proves the rest on a virtual clock
    assert report.lines.warnings == []
    assert min(report.least_left) >= min(2.0, TOKEN_S / 5)
    longest = {group.name: max(group.gaps)[0] for group in report.groups}
    assert max(longest.values()) < max(LONGEST_GAP_S, 3 * longest["plain"])


def test_groups_read_on_while_secrets_are_rotated(
    in_process: Site,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    check(run(in_process, 9.0, monkeypatch), record_property)


@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(200)
def test_groups_read_for_a_minute_while_secrets_are_rotated(
    in_process: Site,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    check(run(in_process, 60.0, monkeypatch), record_property)


@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.timeout(300)
def test_groups_read_for_a_minute_on_kafka_with_rotated_secrets(
    on_kafka: Site,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    check(run(on_kafka, 60.0, monkeypatch), record_property)
