"""kohort.health.app(): an ASGI app, called as servers and frameworks do, and under uvicorn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.health import app
from kohort.processing import process
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.health.kit import LIMIT, probe
from tests.support.virtual import run_virtual


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        yield cluster


async def call(
    application: Any, path: str, *, method: str = "GET", root: str = ""
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and body of a response."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": path, "root_path": root}
    await application(scope, receive, send)
    start, body = sent
    assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
    return start["status"], dict(start["headers"]), body["body"]


def test_probes_follow_an_async_consumer() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster, "t")
            health = app(consumer)
            status, _, body = await call(health, "/ready")
            assert status == 503 and "not started" in json.loads(body)["reasons"][0]
            async with consumer:
                status, headers, body = await call(health, "/ready")
                assert (status, json.loads(body)) == (200, consumer.health().as_dict())
                assert headers[b"content-length"] == b"%d" % len(body)
                await anyio.sleep(301)
                assert (await call(health, "/live"))[0] == 503
                await consumer.poll()
                assert (await call(health, "/live"))[0] == 200
                status, _, body = await call(health, "/metrics")
                assert status == 200 and b"\nkohort_poll_total{" in body
            assert (await call(health, "/ready"))[0] == 503

    run_virtual(main)


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/live", "", 200),
        ("/health/live", "/health", 200),  # as the specification has it
        ("/live", "/health", 200),  # as older frameworks have it
        ("/health/live", "", 404),
        ("/healthy/live", "/health", 404),
        ("/", "", 404),
    ],
)
@pytest.mark.anyio
async def test_paths_are_those_below_the_mount(path: str, root: str, status: int) -> None:
    health = app(KafkaConsumer())
    assert (await call(health, path, root=root))[0] == status
    assert (await call(health, path, root=root, method="HEAD"))[2] == b""


@pytest.mark.anyio
async def test_the_app_runs_alone_and_refuses_websockets() -> None:
    health = app(KafkaConsumer())
    sent: list[str] = []
    waiting = ["lifespan.startup", "lifespan.shutdown", "websocket.connect"]

    async def receive() -> dict[str, Any]:
        return {"type": waiting.pop(0)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await health({"type": "lifespan"}, receive, send)
    await health({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


def test_probes_of_a_web_service_under_uvicorn(cluster: Cluster) -> None:
    """The service starts before its brokers respond, and its stop commits and leaves."""
    uvicorn = pytest.importorskip("uvicorn")
    consumer = AsyncKafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
    )
    handled: list[Any] = []
    health = app(consumer)

    async def handler(record: Any) -> None:
        handled.append(record.value)

    async def service(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await health(scope, receive, send)
            return
        assert (await receive())["type"] == "lifespan.startup"
        task = asyncio.create_task(process(consumer, handler, handle_signals=False))
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        consumer.wakeup()
        await task
        await send({"type": "lifespan.shutdown.complete"})

    async def main() -> None:
        server = uvicorn.Server(
            uvicorn.Config(service, port=0, lifespan="on", log_level="error", access_log=False)
        )
        run = anyio.to_thread.run_sync
        away = cluster.hang()
        task = asyncio.create_task(server.serve())
        async with asyncio.timeout(LIMIT):
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            status, body = await run(probe, port, "/ready")
            assert status == 503
            assert any("no broker was reached yet" in reason for reason in body["reasons"])
            assert (await run(probe, port, "/live"))[0] == 200
            away.stop()
            cluster.produce("orders", ["tea"])
            while (await run(probe, port, "/ready"))[0] != 200 or not handled:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            server.should_exit = True
            await task

    asyncio.run(main())
    assert handled == [b"tea"]
    assert [at.offset for at in cluster.committed("g").values()] == [1]
    assert cluster.group("g").members == ()
