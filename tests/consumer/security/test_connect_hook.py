"""The option ``connect`` with TLS and logins: nothing of a login crosses the wire in clear."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.abc
import anyio.streams.tls
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import InvalidOptionError, KafkaError, TlsVerificationError, WrongListenerError
from kohort.network import Connect, StreamConnection
from kohort.testing import Cluster, Listener, MemoryCluster, Security
from tests.consumer.kit import aread, read, values
from tests.support.awaited import EACH_API

PASSWORD = "top-secret-password"
LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", Listener("SSL", "MTLS", client_auth="required"))
SECURITY = Security(LISTENERS, users={"alice": PASSWORD})
LOGIN = {
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": PASSWORD,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 1}, security=SECURITY) as running:
        running.produce("t", ["a", "b", "c"])
        yield running


class Wire(anyio.abc.ByteStream):
    """A TCP stream that notes what it sends."""

    def __init__(self, inner: anyio.abc.ByteStream, sent: bytearray) -> None:
        self._inner = inner
        self._sent = sent

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._inner.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        self._sent.extend(item)
        await self._inner.send(item)

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        await self._inner.aclose()


def noting(sent: bytearray) -> Connect:
    """Return a function for the option ``connect`` that notes all bytes it sends."""

    async def connect(host: str, port: int) -> StreamConnection:
        return StreamConnection(Wire(await anyio.connect_tcp(host, port), sent))

    return connect


def encrypting(cafile: str) -> Connect:
    """Return a function for the option ``connect`` that does TLS itself."""

    async def connect(host: str, port: int) -> StreamConnection:
        context = ssl.create_default_context(cafile=cafile)
        tcp = await anyio.connect_tcp(host, port)
        stream = await anyio.streams.tls.TLSStream.wrap(
            tcp, hostname=host, ssl_context=context, standard_compatible=False
        )
        return StreamConnection(stream)

    return connect


def options(cluster: Cluster, listener: str, protocol: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers_of(listener),
        "security_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    if protocol.startswith("SASL"):
        found |= LOGIN
    return found | more


def read_all(given: dict[str, Any]) -> Any:
    """Read the records. Return the explanation."""
    with KafkaConsumer("t", **given) as consumer:
        assert values(read(consumer, 3)) == [b"a", b"b", b"c"]
        return consumer.explain()


async def aread_all(consumer_class: Any, given: dict[str, Any]) -> Any:
    """Read the records as read_all() does, on the async API."""
    async with consumer_class("t", **given) as consumer:
        assert values(await aread(consumer, 3)) == [b"a", b"b", b"c"]
        return consumer.explain()


@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_connect_carries_tls_and_the_login(
    cluster: Cluster, consumer_class: Any, protocol: str
) -> None:
    sent = bytearray()
    given = options(cluster, protocol, protocol, ssl_cafile=cluster.ssl_cafile)
    explanation = await aread_all(consumer_class, given | {"connect": noting(sent)})
    assert sent[:1] == b"\x16"
    assert PASSWORD.encode() not in sent
    assert b"kohort" not in sent  # nor is the client's name
    assert explanation.as_dict()["security"]["encrypted_by"] == "kohort"
    login = ", PLAIN as alice" if "SASL" in protocol else ""
    assert f"security: {protocol}{login}" in str(explanation)


def error_of(given: dict[str, Any]) -> KafkaError:
    with KafkaConsumer("t", **given) as consumer, pytest.raises(KafkaError) as raised:
        while True:
            consumer.poll(timeout_ms=1000)
    return raised.value


def test_no_login_is_sent_to_a_listener_without_tls(cluster: Cluster) -> None:
    sent = bytearray()
    given = options(cluster, "SASL_PLAINTEXT", "SASL_SSL", ssl_cafile=cluster.ssl_cafile)
    error = error_of(given | {"connect": noting(sent)})
    assert isinstance(error, WrongListenerError)
    assert "is a listener without TLS" in str(error)
    assert "set connect_encrypts=True" in str(error)
    assert PASSWORD.encode() not in sent


def test_certificate_is_verified_over_connect(cluster: Cluster) -> None:
    sent = bytearray()
    given = options(cluster, "SASL_SSL", "SASL_SSL", ssl_cafile=cluster.ssl_cafile)
    with cluster.serve_certificate("wrong_host"):
        error = error_of(given | {"connect": noting(sent)})
    assert isinstance(error, TlsVerificationError)
    assert "the broker's certificate is for" in str(error)
    assert PASSWORD.encode() not in sent


def test_client_certificate_is_sent_over_connect(cluster: Cluster) -> None:
    client = cluster.client_certificate("reader")
    given = options(cluster, "MTLS", "SSL", ssl_cafile=cluster.ssl_cafile)
    given |= {"ssl_certfile": client.certfile, "ssl_keyfile": client.keyfile}
    explanation = read_all(given | {"connect": noting(bytearray())})
    assert explanation.as_dict()["security"]["certificate_of"] == "ssl_certfile"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_connect_encrypts_leaves_tls_to_the_function(
    cluster: Cluster, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = protocol.replace("PLAINTEXT", "SSL")
    given = options(cluster, listener, protocol, connect_encrypts=True)
    explanation = read_all(given | {"connect": encrypting(cluster.ssl_cafile)})
    login = ", PLAIN as alice" if "SASL" in protocol else ""
    line = f"security: {protocol}, encrypted by the function of connect{login}\n"
    assert line in str(explanation)
    assert explanation.as_dict()["security"]["encrypted_by"] == "connect"
    assert not caplog.records


def test_tls_twice_names_connect_encrypts(cluster: Cluster) -> None:
    given = options(cluster, "SASL_SSL", "SASL_SSL", ssl_cafile=cluster.ssl_cafile)
    error = error_of(given | {"connect": encrypting(cluster.ssl_cafile)})
    assert isinstance(error, WrongListenerError)
    assert "If the function of connect does the TLS itself, set connect_encrypts=True" in str(error)


@pytest.mark.anyio
async def test_memory_cluster_plays_tls_itself() -> None:
    async with MemoryCluster(topics={"t": 1}, security=SECURITY) as memory:
        memory.produce("t", ["a", "b", "c"])
        for listener, certificate in [("SASL_SSL", ""), ("MTLS", "app")]:
            protocol = listener.replace("MTLS", "SSL")
            given: dict[str, Any] = {
                "bootstrap_servers": memory.bootstrap_servers_of(listener),
                "security_protocol": protocol,
                "auto_offset_reset": "earliest",
                "connect": functools.partial(memory.connect, certificate=certificate),
            }
            given |= LOGIN if "SASL" in listener else {}
            explanation = await aread_all(AsyncKafkaConsumer, given)
            assert "encrypted by the function of connect" in str(explanation)


async def connect(host: str, port: int) -> StreamConnection:
    raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"connect_encrypts": True}, "connect_encrypts requires connect"),
        (
            {"connect": connect, "connect_encrypts": True}
            | {"security_protocol": "SSL", "ssl_cafile": "ca.pem"},
            "ssl_cafile is given together with connect_encrypts",
        ),
        (
            {"connect": connect, "security_protocol": "SSL", "ssl_cafile": "missing.pem"},
            "ssl_cafile",
        ),
    ],
)
def test_wrong_options_of_connect_raise_in_the_constructor(given: Any, says: str) -> None:
    for kind in (KafkaConsumer, AsyncKafkaConsumer):
        with pytest.raises(InvalidOptionError, match=says):
            kind("t", **given)
