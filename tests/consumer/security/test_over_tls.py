"""Groups that read over TLS, with a client certificate, while certificates change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.network import Connect, StreamConnection
from kohort.testing import Cluster, Listener, Security

COUNT = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    listeners = (Listener("SSL", client_auth="required"), "PLAINTEXT")
    with Cluster(brokers=2, topics={"t": 2}, security=Security(listeners)) as running:
        for number in range(COUNT):
            running.produce("t", [number.to_bytes(4, "big") * 5000], partition=number % 2)
        yield running


async def by_stream(host: str, port: int) -> StreamConnection:
    """Connect as a function of the option ``connect`` does."""
    return StreamConnection(await anyio.connect_tcp(host, port))


@pytest.fixture(params=[None, by_stream], ids=["tcp", "connect"])
def connect(request: pytest.FixtureRequest) -> Connect | None:
    found: Connect | None = request.param
    return found


def options(cluster: Cluster, connect: Connect | None) -> dict[str, Any]:
    client = cluster.client_certificate("reader")
    return {
        "bootstrap_servers": cluster.bootstrap_servers_of("SSL"),
        "security_protocol": "SSL",
        "ssl_cafile": cluster.ssl_cafile,
        "ssl_certfile": client.certfile,
        "ssl_keyfile": client.keyfile,
        "auto_offset_reset": "earliest",
        "connect": connect,
    }


def numbers(parts: Any) -> list[int]:
    values = [record.value for part in parts.values() for record in part]
    assert all(value == value[:4] * 5000 for value in values)
    return [int.from_bytes(value[:4], "big") for value in values]


def test_group_reads_large_fetches_over_tls(cluster: Cluster, connect: Connect | None) -> None:
    seen: list[int] = []
    with KafkaConsumer("t", group_id=f"sync {connect}", **options(cluster, connect)) as consumer:
        while len(seen) < COUNT:
            seen += numbers(consumer.poll(timeout_ms=1000))
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.anyio
async def test_async_group_reads_large_fetches_over_tls(
    cluster: Cluster, connect: Connect | None, anyio_backend_name: str
) -> None:
    seen: list[int] = []
    with anyio.fail_after(30):
        async with AsyncKafkaConsumer(
            "t", group_id=f"{anyio_backend_name} {connect}", **options(cluster, connect)
        ) as consumer:
            while len(seen) < COUNT:
                seen += numbers(await consumer.poll(timeout_ms=1000))
    assert sorted(seen) == list(range(COUNT))


def test_renewed_certificates_cost_no_record(cluster: Cluster, connect: Connect | None) -> None:
    """Open connections stay open. Later ones use the new certificates of both sides."""
    seen: list[int] = []
    with KafkaConsumer(
        "t", group_id=f"renewing {connect}", connections_max_idle_ms=50, **options(cluster, connect)
    ) as consumer:
        while len(seen) < COUNT:
            seen += numbers(consumer.poll(timeout_ms=1000, max_records=100))
            cluster.renew_certificates()
            cluster.client_certificate("reader")
    assert sorted(seen) == list(range(COUNT))
