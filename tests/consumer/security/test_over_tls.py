"""Groups that read over TLS, with a client certificate, while certificates change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer
from kohort.network import Connect, StreamConnection
from kohort.testing import Cluster, Listener, Security
from tests.consumer.kit import aread
from tests.support.awaited import EACH_API

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


def numbers(records: list[Any]) -> list[int]:
    values = [record.value for record in records]
    assert all(value == value[:4] * 5000 for value in values)
    return [int.from_bytes(value[:4], "big") for value in values]


@pytest.mark.anyio
@EACH_API
async def test_group_reads_large_fetches_over_tls(
    cluster: Cluster, connect: Connect | None, unique: Callable[[str], str], consumer_class: Any
) -> None:
    given = options(cluster, connect)
    async with consumer_class("t", group_id=unique("g"), **given) as consumer:
        seen = numbers(await aread(consumer, COUNT))
    assert sorted(seen) == list(range(COUNT))


def test_renewed_certificates_cost_no_record(cluster: Cluster, connect: Connect | None) -> None:
    """Open connections stay open. Later ones use the new certificates of both sides."""
    seen: list[int] = []
    with KafkaConsumer(
        "t", group_id=f"renewing {connect}", connections_max_idle_ms=50, **options(cluster, connect)
    ) as consumer:
        while len(seen) < COUNT:
            for records in consumer.poll(timeout_ms=1000, max_records=100).values():
                seen += numbers(records)
            cluster.renew_certificates()
            cluster.client_certificate("reader")
    assert sorted(seen) == list(range(COUNT))
