"""The ASGI app. It needs no framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kohort.health._answers import AnyConsumer, answer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def app(consumer: AnyConsumer) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    """Return an ASGI app that answers ``/live``, ``/ready`` and ``/metrics`` for a consumer.

    The first two answer 200, or 503 if ``consumer.health()`` says no, with the health as JSON. The
    last one has the figures of ``metric_samples()`` in the text format of Prometheus, or answers
    404 with ``metrics_enabled=False``. Mount the app under any path, or run it alone.

    It must run in the event loop of an AsyncKafkaConsumer. With a KafkaConsumer any loop will do.
    """

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = answer(_path(scope), consumer)
            headers = [(name.encode(), value.encode()) for name, value in found.headers]
            start = {"type": "http.response.start", "status": found.status, "headers": headers}
            await send(start)
            body = b"" if scope["method"] == "HEAD" else found.body
            await send({"type": "http.response.body", "body": body})
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await _live(receive, send)

    return serve


def _path(scope: Message) -> str:
    """Return the path below the one at which the app is mounted.

    Some frameworks leave the mount in the path, as the specification says, and others remove it.
    """
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def _live(receive: Receive, send: Send) -> None:
    """Take part in the lifespan of a server that runs this app alone."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
