"""Connections through proxies: hostile and wrong responses, limits, names."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import pytest

from kohort.config import ClientConfig, ConsumerConfig
from kohort.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProxyAuthenticationFailedError,
    ProxyConnectionError,
    ProxyRefusedError,
)
from kohort.transport.connection._handshake import connected
from kohort.transport.network._proxy import MAX_HEAD, ProxyConnector
from tests.support.net import free_ports
from tests.support.tls_server import TlsServer
from tests.support.tunnel_proxy import HttpProxy, SocksProxy, TunnelProxy

pytestmark = pytest.mark.anyio

SECRET = "p@ss:w/rd"
LOGIN = ("alice", SECRET)


def connector(url: str) -> ProxyConnector:
    return ProxyConnector(ClientConfig(), ConsumerConfig.from_kwargs(proxy_url=url).security.proxy)


async def error_of(url: str, host: str = "broker", port: int = 9092) -> KafkaError:
    """Return the error of a connection to ``broker:9092``."""
    with pytest.raises(KafkaError) as raised:
        await connected(connector(url), host, port, 60)
    assert SECRET not in repr(raised.value) and "p%40ss" not in repr(raised.value)
    return raised.value


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def echo(sock: Any) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


PROXIES = [SocksProxy, HttpProxy]


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("host", ["127.0.0.1", "broker.internal"])
async def test_bytes_pass_the_proxy(kind: type[TunnelProxy], login: Any, host: str) -> None:
    with TlsServer(None, echo) as server:
        with kind(login=login, names={"broker.internal": "127.0.0.1"}) as proxy:
            link = await connector(proxy.url())(host, server.port)
            await link.send([b"hello"])
            buffer = memoryview(bytearray(5))
            with anyio.fail_after(60):
                assert await link.recv_into(buffer) == 5
            assert bytes(buffer) == b"hello"
            await link.aclose()
            assert proxy.targets == [(host, server.port)]
            assert proxy.passed == b"hello"


async def test_socks5_resolves_names_on_this_machine() -> None:
    with TlsServer(None, echo) as server, SocksProxy() as proxy:
        link = await connector(proxy.url(scheme="socks5"))("localhost", server.port)
        await link.aclose()
        assert ("127.0.0.1", server.port) in proxy.targets
        assert {host for host, _ in proxy.targets} <= {"127.0.0.1", "::1"}
        error = await error_of(proxy.url(scheme="socks5"), "broker.invalid")
        assert "cannot resolve broker.invalid" in str(error)
        assert "With socks5h:// the proxy resolves names" in str(error)


@pytest.mark.parametrize("kind", PROXIES)
async def test_login_is_refused_or_missing(kind: type[TunnelProxy]) -> None:
    with kind(login=LOGIN) as proxy:
        error = await error_of(proxy.url(("alice", "wrong")))
        assert type(error) is ProxyAuthenticationFailedError
        assert str(error).endswith("refused the login. Check user and password in proxy_url")
        error = await error_of(f"{proxy.scheme}://127.0.0.1:{proxy.port}")
        assert type(error) is ProxyAuthenticationFailedError
        assert "wants a login. Put user:password@ before the host in proxy_url" in str(error)


@pytest.mark.parametrize("kind", PROXIES)
async def test_rules_of_the_proxy_refuse(kind: type[TunnelProxy]) -> None:
    with kind(login=LOGIN, forbidden=True) as proxy:
        error = await error_of(proxy.url())
    assert type(error) is ProxyRefusedError
    assert "refused to connect to broker:9092" in str(error)
    assert not error.retriable


@pytest.mark.parametrize("kind", PROXIES)
async def test_broker_behind_the_proxy_is_down(kind: type[TunnelProxy]) -> None:
    (port,) = free_ports(1)
    with kind() as proxy:
        error = await error_of(proxy.url(), "127.0.0.1", port)
    assert type(error) is KafkaConnectionError
    assert f"cannot connect to 127.0.0.1:{port}: the proxy {proxy.url()} did not" in str(error)


@pytest.mark.parametrize("scheme", ["socks5h", "socks5", "http"])
async def test_proxy_is_down(scheme: str) -> None:
    (port,) = free_ports(1)
    error = await error_of(f"{scheme}://alice:p%40ss@127.0.0.1:{port}", "127.0.0.1")
    assert type(error) is ProxyConnectionError
    assert error.retriable
    assert f"cannot connect to the proxy {scheme}://127.0.0.1:{port}: Connection" in str(error)
    assert "Check proxy_url, and that the proxy runs" in str(error)


WRONG = {
    "not SOCKS": ("socks5h", [b"HTTP/1.1 400 Bad Request\r\n\r\n"], "does not respond by SOCKS5"),
    "method not offered": ("socks5h", [b"\x05\x07"], "login method 7, which was not offered"),
    "unknown address": ("socks5h", [b"\x05\x00", b"\x05\x00\x00\x09"], "unknown type 9"),
    "end": ("socks5h", [b"\x05\x00", b"\x05\x00\x00\x03\xffshort"], "closed the connection"),
    "at once": ("socks5h", [b""], "closed the connection before it was connected to broker:9092"),
    "not HTTP": ("http", [b"\x05\xff"], "does not respond by HTTP"),
    "status": ("http", [b"HTTP/1.1 2OO\r\n\r\n"], "does not respond by HTTP"),
    "long": ("http", [b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * MAX_HEAD], "of HTTP headers"),
    "endless 1xx": ("http", [b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_HEAD], "of HTTP headers"),
    "cut": ("http", [b"HTTP/1.1 200 OK\r\n"], "closed the connection"),
}


def scripted(responses: list[bytes]) -> Any:
    """Return a handler that sends one response after each received piece, and then closes."""

    def handle(sock: Any) -> None:
        for response in responses:
            sock.recv(1 << 16)
            sock.sendall(response)
        sock.shutdown(1)
        while sock.recv(1 << 16):
            pass

    return handle


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_response_is_explained(name: str) -> None:
    scheme, responses, says = WRONG[name]
    with TlsServer(None, scripted(responses)) as server:
        error = await error_of(f"{scheme}://127.0.0.1:{server.port}")
    assert type(error) is ProxyConnectionError
    assert says in str(error)


@pytest.mark.parametrize(
    ("scheme", "responses", "kind", "says"),
    [
        ("socks5h", [b"\x05\x00", b"\x05\x08"], ProxyRefusedError, "type of address"),
        ("socks5h", [b"\x05\x00", b"\x05\x04"], KafkaConnectionError, "host unreachable"),
        ("socks5h", [b"\x05\x00", b"\x05\x63"], KafkaConnectionError, "SOCKS5 error 99"),
        ("http", [b"HTTP/1.1 405 No\x1b[2J\r\n\r\n"], ProxyRefusedError, r"405 No\x1b[2J"),
        (
            "http",
            [
                b"HTTP/1.1 407 No\r\nproxy-authenticate: NTLM\r\n"
                b"Proxy-Authenticate: Negotiate\r\n\r\n"
            ],
            ProxyAuthenticationFailedError,
            "accepts only the login ntlm, negotiate",
        ),
    ],
)
async def test_refusals_have_their_types(
    scheme: str, responses: list[bytes], kind: type[KafkaError], says: str
) -> None:
    with TlsServer(None, scripted(responses)) as server:
        error = await error_of(f"{scheme}://127.0.0.1:{server.port}")
    assert type(error) is kind
    assert says in str(error)


async def test_interim_response_is_skipped_and_no_later_byte_is_lost() -> None:
    head = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.0 200\r\nContent-Length: 9\r\n\r\n"
    with TlsServer(None, scripted([head + b"first"])) as server:
        link = await connector(f"http://127.0.0.1:{server.port}")("broker", 9092)
        buffer = memoryview(bytearray(10))
        with anyio.fail_after(60):
            assert await link.recv_into(buffer) == 5
        assert bytes(buffer[:5]) == b"first"
        await link.aclose()


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
@pytest.mark.parametrize("host", ["a\r\nX: y", "a b", "", "x" * 256, "ü" * 300])
async def test_name_of_a_broker_injects_nothing(scheme: str, host: str) -> None:
    """Names come from the metadata of brokers."""
    seen: list[bytes] = []
    with TlsServer(None, lambda sock: seen.append(sock.recv(1 << 16))) as server:
        error = await error_of(f"{scheme}://127.0.0.1:{server.port}", host)
    assert "not a host name for a proxy" in str(error)
    assert seen in ([], [b""])


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
async def test_silent_proxy_counts_against_the_setup_time(scheme: str) -> None:
    stay = threading.Event()
    with TlsServer(None, lambda sock: wait_for(stay)) as server:
        begun = time.monotonic()
        with pytest.raises((KafkaTimeoutError, KafkaConnectionError)) as raised:
            url = f"{scheme}://127.0.0.1:{server.port}"
            await connected(connector(url), "127.0.0.1", 9092, 0.3)
        stay.set()
    assert 0.2 < time.monotonic() - begun < 60
    assert f"through the proxy {url} within 0.3 s" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("proxy:1080", "another scheme, or none"),
        ("socks4://proxy", "another scheme, or none"),
        ("https://proxy", "no TLS to the proxy itself"),
        ("http://proxy/path", "a path, a query or a fragment"),
        ("socks5://:1080", "valid host and port"),
        ("socks5://proxy:0", "valid host and port"),
        ("socks5://proxy:99999", "valid host and port"),
        ("socks5://alice@proxy", "1 to 255 bytes each"),
        (f"socks5://alice:{'x' * 256}@proxy", "1 to 255 bytes each"),
        ("http://a%3Ab:c@proxy", "without a colon"),
        ("http://a:%0Ac@proxy", "no control characters"),
        (7, "not a str but int"),
    ],
)
async def test_wrong_url_is_an_invalid_option(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        ConsumerConfig.from_kwargs(proxy_url=value)
    assert str(raised.value).startswith("proxy_url: expected a URL with socks5://")
    assert str(value) not in str(raised.value)


async def test_options_of_a_proxy_are_read() -> None:
    async def connect(host: str, port: int) -> Any:
        raise ConnectionRefusedError

    url = "socks5h://alice:p%40ss%3Aw%2Frd@Proxy.example"
    config = ConsumerConfig.from_properties({"proxy.url": url})
    found = config.security.proxy.url
    assert found is not None and found.password is not None
    assert found.password.reveal() == SECRET
    assert str(found) == "socks5h://proxy.example:1080"
    assert not [each for each in (SECRET, "p%40ss", "alice") if each in repr(config)]
    assert config == ConsumerConfig.from_kwargs(proxy_url=url)
    former = ConsumerConfig.from_kwargs(socks5_proxy=url)
    assert former.security.proxy.url == found
    assert str(ConsumerConfig.from_kwargs(proxy_url="http://[::1]").security.proxy.url) == (
        "http://[::1]:80"
    )
    with pytest.raises(ValueError, match="proxy_url is given together with socks5_proxy"):
        ConsumerConfig.from_kwargs(proxy_url=url, socks5_proxy=url)
    with pytest.raises(ValueError, match="proxy_url is given together with connect"):
        ConsumerConfig.from_kwargs(proxy_url=url, connect=connect)
