"""kohort.health.serve(): the probes of both consumers by HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.health import _questions, serve
from kohort.health._answers import exposition
from kohort.testing import Cluster
from kohort.types import MetricSample
from tests.health.kit import LIMIT, probe, request

HOST = "127.0.0.1"
WELL = {"live": True, "ready": True, "reasons": []}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        yield cluster


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[KafkaConsumer]:
    servers = cluster.bootstrap_servers
    with KafkaConsumer("orders", bootstrap_servers=servers, group_id="g") as consumer:
        yield consumer


def test_probes_follow_a_consumer_from_its_start_to_its_end(
    cluster: Cluster, consumer: KafkaConsumer
) -> None:
    with serve(consumer, HOST, 0) as server:
        status, health = probe(server.port, "/ready")
        assert (status, health["live"], health["ready"]) == (503, True, False)
        assert "not started" in health["reasons"][0]
        assert probe(server.port, "/live")[0] == 200
        consumer.start()
        assert probe(server.port, "/ready") == (200, WELL)
        assert probe(server.port, "/live?verbose=1") == (200, WELL)
        consumer.close()
        closed = {"live": True, "ready": False, "reasons": ["the consumer is closed"]}
        assert probe(server.port, "/ready") == (503, closed)
        assert probe(server.port, "/live") == (200, closed)


def test_live_fails_when_the_health_says_so(consumer: KafkaConsumer) -> None:
    with serve(consumer, HOST, 0) as server:
        consumer.start()
        queue = consumer._driver.engine.callback_queue
        clock = queue.clock
        queue.clock = lambda: clock() + 301
        status, health = probe(server.port, "/live")
        assert status == 503
        assert health["reasons"][0].startswith("no call of poll() for 301 s")


def test_responses_are_those_of_http(consumer: KafkaConsumer) -> None:
    with serve(consumer, HOST, 0) as server:
        status, headers, body = request(server.port, "/live", method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0
        assert headers["content-type"] == "application/json"
        assert headers["cache-control"] == "no-store"
        assert headers["Server"].strip() == "kohort"
        assert request(server.port, "/")[0] == 404
        assert request(server.port, "/live", method="POST")[0] == 501


def test_metrics_are_in_the_format_of_prometheus(consumer: KafkaConsumer) -> None:
    with serve(consumer, HOST, 0) as server:
        consumer.start()
        consumer.poll()
        status, headers, body = request(server.port, "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = body.decode().splitlines()
        assert "# TYPE kohort_rebalance_total counter" in lines
        [line] = [each for each in lines if each.startswith("kohort_rebalance_total{")]
        assert 'group_id="g"' in line and line.endswith("} 1")


def test_there_are_no_metrics_without_the_option(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    with KafkaConsumer(bootstrap_servers=servers, metrics_enabled=False) as consumer:
        with serve(consumer, HOST, 0) as server:
            assert request(server.port, "/metrics")[0] == 404


def test_the_text_of_figures_is_escaped_and_has_no_unknown_values() -> None:
    samples = [
        MetricSample("poll-total", {"client_id": 'a"b\\c\nd'}, 3.0),
        MetricSample("last-poll-seconds-ago", {"client_id": "c"}, -1.0),
        MetricSample("records-lag", {"topic": "t", "partition": "0"}, 1.5),
        MetricSample("records-lag", {"topic": "t", "partition": "1"}, 2.0),
    ]
    assert exposition(samples) == (
        "# TYPE kohort_poll_total counter\n"
        'kohort_poll_total{client_id="a\\"b\\\\c\\nd"} 3\n'
        "# TYPE kohort_records_lag gauge\n"
        'kohort_records_lag{topic="t",partition="0"} 1.5\n'
        'kohort_records_lag{topic="t",partition="1"} 2\n'
    )


def test_a_closed_server_frees_its_port_and_its_thread(consumer: KafkaConsumer) -> None:
    server = serve(consumer, HOST, 0)
    port = server.port
    with pytest.raises(OSError, match="in use"):
        serve(consumer, HOST, port)
    server.close()
    server.close()
    assert not [each for each in threading.enumerate() if each.name == "kohort-health"]
    serve(consumer, HOST, port).close()


def test_a_client_that_says_nothing_disturbs_no_other(consumer: KafkaConsumer) -> None:
    with serve(consumer, HOST, 0) as server:
        with (
            socket.create_connection((HOST, server.port)),
            socket.create_connection((HOST, server.port)) as other,
        ):
            other.sendall(b"\x16\x03\x01 no request\r\n\r\n")
            assert probe(server.port, "/live")[0] == 200


def test_all_addresses_are_those_of_ipv4_too(consumer: KafkaConsumer) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with serve(consumer, "::", 0) as server:
        assert request(server.port, "/live")[0] == 200
        assert request(server.port, "/live", host="::1")[0] == 200


# -- AsyncKafkaConsumer ----------------------------------------------------------------------------


@asynccontextmanager
async def polled_consumer(cluster: Cluster) -> AsyncIterator[AsyncKafkaConsumer]:
    servers = cluster.bootstrap_servers
    async with AsyncKafkaConsumer("orders", bootstrap_servers=servers, group_id="g") as consumer:
        yield consumer


@pytest.mark.anyio
async def test_probes_of_an_async_consumer(cluster: Cluster) -> None:
    consumer = AsyncKafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
    )
    run = anyio.to_thread.run_sync
    with serve(consumer, HOST, 0) as server:
        status, health = await run(probe, server.port, "/ready")
        assert status == 503 and "not started" in health["reasons"][0]
        async with consumer:
            assert await run(probe, server.port, "/ready") == (200, WELL)
            assert (await run(request, server.port, "/metrics"))[0] == 200
            assert (await run(request, server.port, "/"))[0] == 404
        status, health = await run(probe, server.port, "/ready")
        assert (status, health["reasons"]) == (503, ["the consumer is closed"])


@pytest.mark.anyio
async def test_a_blocked_event_loop_is_not_ready(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not live either when it has been blocked for the time of a program without polls."""
    monkeypatch.setattr(_questions, "ANSWER_SECONDS", 0.05)
    async with polled_consumer(cluster) as consumer:
        with serve(consumer, HOST, 0) as server:
            # No other task runs, because these calls block the event loop.
            status, health = probe(server.port, "/ready")
            assert (status, health["live"], health["ready"]) == (503, True, False)
            assert "the event loop of the consumer has not run for 0." in health["reasons"][0]
            assert probe(server.port, "/live")[0] == 200
            assert request(server.port, "/metrics")[0] == 503
            clock = _questions.clock
            monkeypatch.setattr(_questions, "clock", lambda: clock() + 301)
            assert probe(server.port, "/live")[0] == 503
            monkeypatch.undo()
            run = anyio.to_thread.run_sync
            with anyio.fail_after(LIMIT):
                while (await run(probe, server.port, "/ready"))[0] != 200:
                    await consumer.poll()


def test_an_ended_event_loop_is_not_live(cluster: Cluster) -> None:
    async def main() -> AsyncKafkaConsumer:
        servers = cluster.bootstrap_servers
        consumer = AsyncKafkaConsumer("orders", bootstrap_servers=servers, group_id="g")
        await consumer.start()
        return consumer  # and no close()

    consumer = asyncio.run(main())
    with serve(consumer, HOST, 0) as server:
        status, health = probe(server.port, "/live")
        assert status == 503 and "ended" in health["reasons"][0]
    asyncio.run(consumer.close())
