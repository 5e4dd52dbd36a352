"""Health of both consumers, with the server and the ASGI app of its probes."""

from __future__ import annotations

from typing import assert_type

from kohort import AsyncKafkaConsumer, Health, KafkaConsumer, ProcessingFacts
from kohort.health import HealthServer, app, serve
from kohort.processing import process


async def work(record: object) -> None: ...


async def run(consumer: AsyncKafkaConsumer[bytes, bytes]) -> None:
    with serve(consumer, "127.0.0.1", 8081) as server:
        assert_type(server.port, int)
        await process(consumer, work)
    assert_type(consumer.health(), Health)
    await app(consumer)({"type": "lifespan"}, receive, send)


async def receive() -> dict[str, object]:
    return {}


async def send(message: object) -> None: ...


def look(consumer: KafkaConsumer[str, int]) -> None:
    live, ready, reasons = consumer.health()
    assert_type(live, bool)
    assert_type(ready, bool)
    assert_type(reasons, tuple[str, ...])
    assert_type(consumer.health().as_dict(), dict[str, bool | list[str]])
    assert_type(consumer.explain().as_dict()["processing"], ProcessingFacts | None)
    assert_type(serve(consumer), HealthServer)
    app(consumer)
