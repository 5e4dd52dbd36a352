"""Brokers that refuse the client: a typed error at the first contact, once for each cause."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, NoBrokersAvailable, TopicPartition
from kohort.errors import (
    KafkaError,
    SecurityError,
    TlsClientCertificateError,
    TlsError,
    TlsVerificationError,
    UnknownTopicOrPartitionError,
    WrongListenerError,
)
from kohort.protocol import FrameReader, decode_request, encode_response, messages
from tests.consumer import servers
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_error, poll_quietly
from tests.support.certificates import Certificates
from tests.support.net import free_ports
from tests.support.tls_server import TlsServer, broker, server_context

FIRST_CONTACT = 60.0
"""Seconds until the error, long before the time for the first contact ends."""
BOOTSTRAP = {"bootstrap_timeout_ms": 120_000}
MAX_CONNECTS = 5


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def echo(sock: Any) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def sasl_listener(sock: Any) -> None:
    """Respond to ApiVersions and SaslHandshake. Close at anything else, as Kafka does."""
    reader = FrameReader(1 << 20)
    while data := sock.recv(1 << 16):
        for frame in reader.feed(data):
            header, request = decode_request(frame)
            answer: Any
            if isinstance(request, messages.ApiVersionsRequest):
                answer = messages.ApiVersionsResponse(
                    api_keys=[
                        messages.ApiVersionsResponse.ApiVersion(
                            api_key=key, min_version=0, max_version=last
                        )
                        for key, last in ((3, 12), (17, 1), (18, 4), (36, 2))
                    ]
                )
            elif isinstance(request, messages.SaslHandshakeRequest):
                answer = messages.SaslHandshakeResponse(
                    error_code=33, mechanisms=["SCRAM-SHA-256", "PLAIN"]
                )
            else:
                return
            version = header.request_api_version
            sock.sendall(b"".join(encode_response(answer, version, header.correlation_id)))


def alert(sock: Any) -> None:
    """Respond as a TLS listener responds to bytes of Kafka."""
    sock.recv(1 << 16)
    sock.sendall(servers.TLS_ALERT)


def plain_broker(sock: Any) -> None:
    """Close at a TLS hello without sending a byte. Serve Kafka otherwise."""
    if sock.recv(1, socket.MSG_PEEK) == b"\x16":
        sock.recv(1 << 16)
        return
    sasl_listener(sock)


Row = tuple[
    Callable[[Certificates], ssl.SSLContext | None], Any, dict[str, Any], type[SecurityError], str
]
TLS: dict[str, Any] = {"security_protocol": "SSL"}
ROWS: dict[str, Row] = {
    "wrong CA": (
        lambda c: server_context(c, "otherca"),
        echo,
        TLS,
        TlsVerificationError,
        "is signed by CN=otherroot, which is not in ssl_cafile",
    ),
    "wrong host": (
        lambda c: server_context(c, "wronghost"),
        echo,
        TLS,
        TlsVerificationError,
        "is for kafka.example.org, not for localhost",
    ),
    "expired": (
        lambda c: server_context(c, "expired"),
        echo,
        TLS,
        TlsVerificationError,
        "expired on 2020-01-02",
    ),
    "plain to TLS port": (
        lambda c: None,
        alert,
        {},
        WrongListenerError,
        "is a TLS listener: set security_protocol to SSL or SASL_SSL",
    ),
    "TLS to plain port": (
        lambda c: None,
        plain_broker,
        TLS,
        WrongListenerError,
        "is a listener without TLS: set security_protocol to PLAINTEXT",
    ),
    "client certificate missing": (
        lambda c: server_context(c, client_auth=True),
        echo,
        TLS,
        TlsClientCertificateError,
        "the broker requires a client certificate, and none is set",
    ),
    "client certificate foreign": (
        lambda c: server_context(c, client_auth=True),
        echo,
        TLS | {"ssl_certfile": "otherclient.both"},
        TlsClientCertificateError,
        "the broker does not trust its CA",
    ),
    "plain to SASL listener": (
        lambda c: None,
        sasl_listener,
        {},
        WrongListenerError,
        "set security_protocol to SASL_PLAINTEXT and sasl_mechanism to one that it offers (PLAIN,",
    ),
    "SSL to SASL_SSL": (
        lambda c: server_context(c),
        sasl_listener,
        TLS,
        WrongListenerError,
        "wants a login: set security_protocol to SASL_SSL",
    ),
}


@contextlib.contextmanager
def refusing(row: str, certificates: Certificates) -> Iterator[tuple[TlsServer, dict[str, Any]]]:
    make_context, handle, options, _, _ = ROWS[row]
    options = dict(options)
    if options:
        options["ssl_cafile"] = certificates.ca
    if "ssl_certfile" in options:
        options["ssl_certfile"] = str(certificates.path(options["ssl_certfile"]))
    with TlsServer(make_context(certificates), handle) as server:
        yield server, {"bootstrap_servers": server.address, **BOOTSTRAP, **options}


@pytest.mark.parametrize("row", ROWS)
def test_poll_raises_refusal_at_first_contact(
    row: str, certificates: Certificates, make: MakeConsumer
) -> None:
    kind, says = ROWS[row][3:]
    with refusing(row, certificates) as (server, options):
        begun = time.monotonic()
        consumer = make("orders", **options)
        error: SecurityError = poll_error(consumer, SecurityError)
        assert time.monotonic() - begun < FIRST_CONTACT
        assert type(error) is kind
        assert says in str(error)
        assert str(error).startswith(server.address)
        assert not error.retriable
        assert poll_quietly(consumer, seconds=0.5) == []
        with pytest.raises(kind):  # a call that needs the cluster does not wait for a timeout
            consumer.topics()
        with pytest.raises(kind):
            consumer.bootstrap()
        assert says in str(consumer.explain())
        consumer.close()
        assert server.connects <= MAX_CONNECTS


@pytest.mark.anyio
@pytest.mark.parametrize("row", ROWS)
async def test_start_raises_refusal_at_first_contact(row: str, certificates: Certificates) -> None:
    kind, says = ROWS[row][3:]
    with refusing(row, certificates) as (server, options):
        begun = time.monotonic()
        with pytest.raises(SecurityError) as raised:
            async with AsyncKafkaConsumer("orders", **options):
                pass
        assert time.monotonic() - begun < FIRST_CONTACT
        assert type(raised.value) is kind
        assert says in str(raised.value)
        assert server.connects <= MAX_CONNECTS


def test_refusals_of_all_servers_are_listed(certificates: Certificates, make: MakeConsumer) -> None:
    with (
        TlsServer(server_context(certificates, "expired"), echo) as first,
        TlsServer(server_context(certificates, "wronghost"), echo) as second,
        TlsServer(server_context(certificates, client_auth=True), echo) as third,
    ):
        servers = [first, second]
        consumer = make(
            "orders",
            bootstrap_servers=[each.address for each in servers],
            ssl_cafile=certificates.ca,
            **TLS,
        )
        error = poll_error(consumer, SecurityError)
        assert type(error) is TlsVerificationError
        assert all(each.address in str(error) for each in servers)
        consumer.close()
        servers.append(third)
        consumer = make(
            "orders",
            bootstrap_servers=[each.address for each in servers],
            ssl_cafile=certificates.ca,
            **TLS,
        )
        error = poll_error(consumer, SecurityError)
        assert type(error) is SecurityError
        assert all(each.address in str(error) for each in servers)
        consumer.close()


def test_server_that_fails_otherwise_may_recover(
    certificates: Certificates, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        TlsServer(server_context(certificates, "expired"), echo) as server,
        caplog.at_level(logging.WARNING),
    ):
        consumer = make(
            "orders",
            bootstrap_servers=[server.address, nobody],
            ssl_cafile=certificates.ca,
            bootstrap_timeout_ms=700,
            **TLS,
        )
        error = poll_error(consumer, KafkaError)
        assert type(error) is NoBrokersAvailable
        assert "expired on 2020-01-02" in str(error)
        assert nobody in str(error)
        consumer.close()
    assert any("TlsVerificationError" in each.getMessage() for each in caplog.records)


def test_other_server_is_used_when_one_refuses(
    certificates: Certificates, make: MakeConsumer
) -> None:
    with (
        TlsServer(server_context(certificates, "expired"), echo) as refusing,
        TlsServer(
            server_context(certificates), broker(lambda: ("localhost", serving.port))
        ) as serving,
    ):
        consumer = make(
            bootstrap_servers=[refusing.address, serving.address],
            ssl_cafile=certificates.ca,
            **TLS,
        )
        consumer.assign([TopicPartition("orders", 0)])
        assert [each for each in poll_quietly(consumer, 0.5) if isinstance(each, TlsError)] == []
        consumer.bootstrap(timeout_ms=60_000)
        consumer.close()


def test_refusal_after_first_contact_is_raised_once(
    certificates: Certificates, make: MakeConsumer, tmp_path: Path
) -> None:
    """The broker's certificate becomes invalid while the client runs, and later valid again."""
    current = [server_context(certificates)]

    def choose(sock: Any, _name: Any, _context: Any) -> None:
        sock.context = current[0]

    cut: list[Any] = []

    def handle(sock: Any) -> None:
        cut.append(sock)
        broker(lambda: ("localhost", server.port))(sock)

    with TlsServer(server_context(certificates), handle) as server:
        assert server.context is not None
        server.context.sni_callback = choose
        consumer = make(
            bootstrap_servers=server.address,
            ssl_cafile=certificates.ca,
            metadata_max_age_ms=100,
            **TLS,
        )
        consumer.bootstrap(timeout_ms=60_000)
        for _ in range(2):
            current[0] = server_context(certificates, "expired")
            for sock in cut:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
            error = poll_error(consumer, SecurityError)
            assert type(error) is TlsVerificationError
            assert "expired on 2020-01-02" in str(error)
            assert consumer.explain().as_dict()["security"]["refusals"]
            connects = server.connects
            assert poll_quietly(consumer, seconds=1.0) == []
            assert server.connects - connects <= 3
            current[0] = server_context(certificates)
            deadline = time.monotonic() + 120
            while consumer.explain().as_dict()["security"]["refusals"]:
                assert consumer.poll(timeout_ms=100) == {}
                assert time.monotonic() < deadline
        consumer.close()


def test_client_certificate_rotates_without_restart(
    certificates: Certificates, make: MakeConsumer, tmp_path: Path
) -> None:
    path = tmp_path / "client.pem"
    shutil.copy(certificates.path("otherclient.both"), path)
    with TlsServer(
        server_context(certificates, client_auth=True),
        broker(lambda: ("localhost", server.port)),
    ) as server:
        consumer = make(
            bootstrap_servers=server.address,
            ssl_cafile=certificates.ca,
            ssl_certfile=str(path),
            **TLS,
        )
        consumer.assign([TopicPartition("orders", 0)])
        assert type(poll_error(consumer, SecurityError)) is TlsClientCertificateError
        shutil.copy(certificates.path("client.both"), path)
        deadline = time.monotonic() + 120
        while not consumer.bootstrap_connected():
            with contextlib.suppress(UnknownTopicOrPartitionError):  # This broker has no topics.
                consumer.poll(timeout_ms=100)
            assert time.monotonic() < deadline
        consumer.close()


def test_explain_names_certificate_that_expires_soon(
    certificates: Certificates, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer: KafkaConsumer = make(
        bootstrap_servers="localhost:1",
        ssl_cafile=certificates.ca,
        ssl_certfile=str(certificates.path("client.both")),
        **TLS,
    )
    security = consumer.explain().as_dict()["security"]
    assert security["protocol"] == "SSL"
    assert 28 < (security["certificate_expires_in_days"] or 0) < 30
    assert "expires" not in str(consumer.explain())
    consumer.close()
    expired: KafkaConsumer = make(
        bootstrap_servers="localhost:1",
        ssl_cafile=certificates.ca,
        ssl_certfile=str(certificates.path("expired.both")),
        **TLS,
    )
    assert "the client certificate of ssl_certfile expired on 2020-01-02" in str(expired.explain())
    expired.close()
