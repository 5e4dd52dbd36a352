"""Consumers that read through proxies, with TLS and a login inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import KafkaConsumer
from kohort.errors import NoBrokersAvailable, ProxyAuthenticationFailedError
from kohort.testing import Cluster, Security
from tests.consumer.kit import aread
from tests.consumer.secured import on_kafka
from tests.consumer.secured import options as kafka_options
from tests.support.awaited import EACH_API
from tests.support.net import free_ports
from tests.support.secure_kafka import SecureKafka
from tests.support.tunnel_proxy import HttpProxy, SocksProxy, TunnelProxy

PASSWORD = "top-secret-password"
LOGIN = ("alice", "of-the-proxy")
COUNT = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    security = Security(["PLAINTEXT", "SASL_SSL"], users={"alice": PASSWORD})
    with Cluster(brokers=2, topics={"t": 2}, security=security) as running:
        for number in range(COUNT):
            running.produce("t", [str(number)], partition=number % 2)
        yield running


@pytest.fixture(params=[SocksProxy, HttpProxy])
def proxy(request: pytest.FixtureRequest) -> Iterator[TunnelProxy]:
    with request.param(login=LOGIN) as running:
        yield running


def options(cluster: Cluster, proxy: TunnelProxy, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers_of("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": cluster.ssl_cafile,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        "auto_offset_reset": "earliest",
        "proxy_url": proxy.url(),
    } | more


def values(parts: Any) -> list[int]:
    return [int(record.value) for part in parts.values() for record in part]


def read_all(topic: str, given: dict[str, Any]) -> Any:
    """Read all records in a group. Return the explanation."""
    with KafkaConsumer(topic, **given) as consumer:
        seen: list[int] = []
        while len(seen) < COUNT:
            seen += values(consumer.poll(timeout_ms=500))
        assert sorted(seen) == list(range(COUNT))
        return consumer.explain()


@pytest.mark.anyio
@EACH_API
async def test_group_reads_through_a_proxy(
    cluster: Cluster, proxy: TunnelProxy, unique: Callable[[str], str], consumer_class: Any
) -> None:
    given = options(cluster, proxy, group_id=unique("g"))
    async with consumer_class("t", **given) as consumer:
        seen = [int(record.value or 0) for record in await aread(consumer, COUNT)]
        explanation = consumer.explain()
    assert sorted(seen) == list(range(COUNT))
    assert proxy.connects > 1
    assert proxy.passed[:1] == b"\x16"
    assert PASSWORD.encode() not in proxy.passed
    shown = f"{explanation} {explanation.as_dict()}"
    assert f"proxy: {proxy.scheme}://127.0.0.1:{proxy.port}\n" in shown
    assert "security: SASL_SSL, PLAIN as alice" in shown
    assert LOGIN[1] not in shown
    assert {port for _, port in proxy.targets} == {
        int(each.rpartition(":")[2]) for each in given["bootstrap_servers"].split(",")
    }


def test_kafka_python_options_of_proxies_are_accepted(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    from kohort.compat import kafka_python

    with SocksProxy(login=LOGIN) as proxy:
        for name in ("proxy_url", "socks5_proxy"):
            with kafka_python.KafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers_of("PLAINTEXT"),
                auto_offset_reset="earliest",
                **{name: proxy.url()},
            ) as consumer:
                seen: list[int] = []
                while len(seen) < COUNT:
                    seen += values(consumer.poll(timeout_ms=500))
        assert proxy.connects > 1
    assert [each.message for each in caplog.records if "deprecated" in each.message] == [
        "socks5_proxy is deprecated: use proxy_url"
    ]


def test_names_that_only_the_proxy_knows_are_read() -> None:
    with Cluster(topics={"t": 1}, advertised_host="broker.invalid") as cluster:
        cluster.produce("t", [str(number) for number in range(COUNT)])
        with SocksProxy(names={"broker.invalid": "127.0.0.1"}) as proxy:
            servers = cluster.bootstrap_servers
            assert "broker.invalid" in servers
            explanation = read_all(
                "t",
                {
                    "bootstrap_servers": servers,
                    "proxy_url": proxy.url(),
                    "auto_offset_reset": "earliest",
                },
            )
            assert explanation.as_dict()["cluster"]["proxy"] == proxy.url()


def test_refused_login_at_the_proxy_raises_at_first_contact(
    cluster: Cluster, proxy: TunnelProxy, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(cluster, proxy, proxy_url=proxy.url(("alice", "wrong-of-the-proxy")))
    with KafkaConsumer("t", **given) as consumer:
        with pytest.raises(ProxyAuthenticationFailedError, match="refused the login") as raised:
            consumer.poll(timeout_ms=60_000)
        assert "wrong-of-the-proxy" not in f"{raised.value!r} {consumer.explain()} {caplog.text}"


def test_unreachable_proxy_is_named(cluster: Cluster) -> None:
    (port,) = free_ports(1)
    with SocksProxy() as proxy:
        given = options(
            cluster, proxy, proxy_url=f"http://127.0.0.1:{port}", bootstrap_timeout_ms=500
        )
        with KafkaConsumer("t", **given) as consumer:
            with pytest.raises(NoBrokersAvailable) as raised:
                consumer.poll(timeout_ms=60_000)
    assert f"cannot connect to the proxy http://127.0.0.1:{port}" in str(raised.value)
    assert "Check proxy_url, and that the proxy runs" in str(raised.value)


@pytest.mark.real_kafka
@pytest.mark.parametrize("kind", [SocksProxy, HttpProxy])
def test_apache_kafka_is_read_through_a_proxy(
    secure_kafka: SecureKafka, kind: type[TunnelProxy]
) -> None:
    secured = on_kafka(secure_kafka)
    topic = f"through-{kind.scheme}"
    secured.fill(topic, COUNT)
    with kind(login=LOGIN) as proxy:
        more = {"proxy_url": proxy.url(), "group_id": topic}
        read_all(topic, kafka_options(secured, "SASL_SSL", "SCRAM-SHA-512", **more))
        assert proxy.connects > 1
        assert proxy.passed[:1] == b"\x16"
