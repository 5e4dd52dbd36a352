"""Wrong settings on both secured clusters: each raises a typed error quickly."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from kohort import KafkaConsumer
from kohort.errors import (
    KafkaTimeoutError,
    NoBrokersAvailable,
    SaslAuthenticationFailedError,
    SecurityError,
    TlsClientCertificateError,
    TlsVerificationError,
    UnsupportedSaslMechanismError,
    WrongListenerError,
)
from kohort.testing import Cluster, Listener, Security
from tests.support.certificates import Certificates
from tests.support.counting_proxy import CountingProxy
from tests.support.secure_kafka import SecureKafka

FIRST_CONTACT = 60.0
"""Seconds from the first poll() to the error."""
MAX_CONNECTS = 5
MAX_RSS = 80 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@dataclass
class Target:
    """A secured cluster with its CA, its addresses and its faulty listeners."""

    cafile: str
    address_of: Callable[[str], str]
    expired: Callable[[], AbstractContextManager[str]]
    hanging: Callable[[], AbstractContextManager[object]]


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    listeners = (
        "PLAINTEXT",
        "SSL",
        Listener("SSL", "MTLS", client_auth="required"),
        "SASL_PLAINTEXT",
        "SASL_SSL",
        Listener("SASL_SSL", "OAUTH", mechanisms=["OAUTHBEARER"]),
    )
    security = Security(listeners, {"alice": "alice-secret"}, failed_authentication_delay_ms=300)
    with Cluster(topics={"orders": 1}, security=security) as cluster:
        yield cluster


@pytest.fixture(params=["inprocess", pytest.param("kafka", marks=pytest.mark.real_kafka)])
def target(request: pytest.FixtureRequest) -> Target:
    if request.param == "kafka":
        kafka: SecureKafka = request.getfixturevalue("secure_kafka")
        return Target(
            kafka.certificates.ca,
            kafka.bootstrap_servers_of,
            lambda: contextlib.nullcontext(kafka.bootstrap_servers_of("EXPIRED")),
            kafka.hanging,
        )
    cluster: Cluster = request.getfixturevalue("secured")

    @contextlib.contextmanager
    def expired() -> Iterator[str]:
        with cluster.serve_certificate("expired"):
            yield cluster.bootstrap_servers_of("SSL")

    return Target(cluster.ssl_cafile, cluster.bootstrap_servers_of, expired, cluster.slow_handshake)


@dataclass
class Row:
    """A wrong setting: the listener, the options, and the error."""

    listener: str
    protocol: str
    kind: type[SecurityError]
    says: str
    options: dict[str, str] | None = None
    host: str = "localhost"
    cafile: str | None = None


LOGIN = {"sasl_plain_username": "alice", "sasl_plain_password": "wrong"}
ROWS = {
    "wrong CA": Row(
        "SSL",
        "SSL",
        TlsVerificationError,
        "which is not in ssl_cafile",
        cafile="otherroot.pem",
    ),
    # TLS does not accept an address without dots as an IP address. The system does.
    "wrong host": Row(
        "SSL", "SSL", TlsVerificationError, "not for 127.1. Use one of these", host="127.1"
    ),
    "expired": Row("expired", "SSL", TlsVerificationError, "certificate expired on 20"),
    "plain to TLS port": Row("SSL", "PLAINTEXT", WrongListenerError, "is a TLS listener: set"),
    "TLS to plain port": Row(
        "PLAINTEXT", "SSL", WrongListenerError, "is a listener without TLS: set"
    ),
    "TLS to SASL_PLAINTEXT": Row(
        "SASL_PLAINTEXT", "SSL", WrongListenerError, "is a listener without TLS: set"
    ),
    "client certificate missing": Row(
        "MTLS", "SSL", TlsClientCertificateError, "requires a client certificate, and none is set"
    ),
    "client certificate foreign": Row(
        "MTLS",
        "SSL",
        TlsClientCertificateError,
        "refused the client certificate of ssl_certfile",
        {"ssl_certfile": "otherclient.both"},
    ),
    "plain to SASL listener": Row(
        "SASL_PLAINTEXT",
        "PLAINTEXT",
        WrongListenerError,
        "wants a login: set security_protocol to SASL_PLAINTEXT and sasl_mechanism to one that",
    ),
    "mechanism not enabled": Row(
        "OAUTH",
        "SASL_SSL",
        UnsupportedSaslMechanismError,
        "does not offer the SASL mechanism PLAIN. Set sasl_mechanism to one that it offers: OAUTHB",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "wrong password": Row(
        "SASL_SSL",
        "SASL_SSL",
        SaslAuthenticationFailedError,
        "refused the PLAIN login of 'alice'",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "wrong password, SCRAM": Row(
        "SASL_PLAINTEXT",
        "SASL_PLAINTEXT",
        SaslAuthenticationFailedError,
        "refused the SCRAM-SHA-512 login of 'alice'",
        LOGIN | {"sasl_mechanism": "SCRAM-SHA-512"},
    ),
    "SASL to plain listener": Row(
        "PLAINTEXT",
        "SASL_PLAINTEXT",
        WrongListenerError,
        "is a listener without SASL. Set security_protocol to PLAINTEXT",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "SASL_SSL to SSL": Row(
        "SSL",
        "SASL_SSL",
        WrongListenerError,
        "is a listener without SASL. Set security_protocol to PLAINTEXT or SSL",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "SASL_PLAINTEXT to SASL_SSL": Row(
        "SASL_SSL",
        "SASL_PLAINTEXT",
        WrongListenerError,
        "is a TLS listener: set security_protocol to SSL or SASL_SSL",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "SASL_SSL to SASL_PLAINTEXT": Row(
        "SASL_PLAINTEXT",
        "SASL_SSL",
        WrongListenerError,
        "is a listener without TLS: set security_protocol to PLAINTEXT or SASL_PLAINTEXT",
        LOGIN | {"sasl_mechanism": "PLAIN"},
    ),
    "SSL to SASL_SSL": Row(
        "SASL_SSL",
        "SSL",
        WrongListenerError,
        "wants a login: set security_protocol to SASL_SSL and sasl_mechanism to one that it offers",
    ),
}


@contextlib.contextmanager
def wrong(
    row: Row, target: Target, certificates: Certificates
) -> Iterator[tuple[CountingProxy, dict[str, Any]]]:
    """Start a proxy before the listener of the row. Yield it with the options of the client."""
    with contextlib.ExitStack() as stack:
        if row.listener == "expired":
            address = stack.enter_context(target.expired())
        else:
            address = target.address_of(row.listener)
        proxy = stack.enter_context(CountingProxy(address))
        options: dict[str, Any] = {
            "bootstrap_servers": f"{row.host}:{proxy.port}",
            "security_protocol": row.protocol,
        }
        if "SSL" in row.protocol:
            other = row.cafile and str(certificates.path(row.cafile))
            options["ssl_cafile"] = other or target.cafile
        for name, value in (row.options or {}).items():
            is_file = name.endswith("file")
            options[name] = str(certificates.path(value)) if is_file else value
        yield proxy, options


@pytest.mark.parametrize("name", ROWS)
def test_wrong_setting_raises_at_first_contact(
    name: str, target: Target, certificates: Certificates
) -> None:
    row = ROWS[name]
    with (
        wrong(row, target, certificates) as (proxy, options),
        KafkaConsumer("orders", bootstrap_timeout_ms=120_000, **options) as consumer,
    ):
        begun = time.monotonic()
        with pytest.raises(SecurityError) as raised:
            while time.monotonic() - begun < 2 * FIRST_CONTACT:
                consumer.poll(timeout_ms=100)
        assert time.monotonic() - begun < FIRST_CONTACT
        assert type(raised.value) is row.kind
        assert row.says in str(raised.value)
        assert str(raised.value).startswith(options["bootstrap_servers"])
        assert proxy.connects <= MAX_CONNECTS


def test_explain_names_the_login(secured: Cluster) -> None:
    with KafkaConsumer(
        "orders",
        bootstrap_servers=secured.bootstrap_servers_of("SASL_SSL"),
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
        ssl_cafile=secured.ssl_cafile,
    ) as consumer:
        consumer.bootstrap(timeout_ms=60_000)
        assert "security: SASL_SSL, SCRAM-SHA-256 as alice" in str(consumer.explain())
        assert "alice-secret" not in str(consumer.explain().as_dict())


READ_ALL = """
import json, pathlib, sys
from kohort import KafkaConsumer
from kohort.errors import SecurityError
found = []
for options in json.load(sys.stdin):
    with KafkaConsumer("orders", **options) as consumer:
        try:
            for _ in range(40):
                consumer.poll(timeout_ms=100)
        except SecurityError as error:
            found.append(type(error).__name__)
# ru_maxrss would begin with the size of the process that started this one.
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps([found, int(status.split("VmHWM:")[1].split()[0]) * 1024]))
"""


@pytest.mark.parametrize("expired", [False, True], ids=["all settings", "expired"])
def test_wrong_settings_take_little_memory(
    target: Target, certificates: Certificates, expired: bool
) -> None:
    """A TLS alert that is read as the length of a frame would take 350 MB.

    The row "expired" runs separately, because the in-process cluster has only one certificate.
    """
    with contextlib.ExitStack() as stack:
        rows = [row for row in ROWS.values() if (row.listener == "expired") == expired]
        assert rows
        given = [stack.enter_context(wrong(row, target, certificates))[1] for row in rows]
        done = subprocess.run(
            [sys.executable, "-c", READ_ALL],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
    found, most = json.loads(done.stdout)
    assert found == [row.kind.__name__ for row in rows]
    assert most < MAX_RSS


def error_at_the_deadline(servers: str, **options: Any) -> NoBrokersAvailable:
    """Return the error of a consumer that has one second for the first contact."""
    begun = time.monotonic()
    with (
        KafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            bootstrap_timeout_ms=1000,
            socket_connection_setup_timeout_ms=300,
            **options,
        ) as consumer,
        pytest.raises(KafkaTimeoutError) as raised,
    ):
        while time.monotonic() - begun < 60:
            consumer.poll(timeout_ms=100)
    assert 1.0 <= time.monotonic() - begun < 60.0
    assert isinstance(raised.value, NoBrokersAvailable)
    assert raised.value.retriable
    return raised.value


@pytest.mark.cases(1)  # each waits for its deadline
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_hanging_handshake_is_named_at_the_deadline(target: Target, protocol: str) -> None:
    """The settings are correct, so the consumer keeps trying."""
    login = LOGIN | {"sasl_mechanism": "PLAIN"} if protocol == "SASL_SSL" else {}
    with target.hanging(), CountingProxy(target.address_of(protocol)) as proxy:
        error = error_at_the_deadline(
            f"localhost:{proxy.port}",
            security_protocol=protocol,
            ssl_cafile=target.cafile,
            **login,
        )
        assert "the TLS handshake was not done within 0.3 s" in str(error)
        assert proxy.connects <= MAX_CONNECTS


HANGING_LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"} | LOGIN


def test_hanging_login_is_named_at_the_deadline(secured: Cluster) -> None:
    rule = secured.hang("SaslAuthenticate", times=None)
    try:
        servers = secured.bootstrap_servers_of("SASL_PLAINTEXT")
        error = error_at_the_deadline(servers, **HANGING_LOGIN)
    finally:
        rule.stop()
    assert "did not complete the PLAIN login within 0.3 s" in str(error)


@pytest.mark.real_kafka
def test_broker_that_hangs_is_named_at_the_deadline(secure_kafka: SecureKafka) -> None:
    with secure_kafka.hanging():
        servers = secure_kafka.bootstrap_servers_of("SASL_PLAINTEXT")
        error = error_at_the_deadline(servers, **HANGING_LOGIN)
    assert "accepted, but did not respond within 0.3 s" in str(error)
