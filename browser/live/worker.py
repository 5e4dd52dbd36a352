"""The calls of a page to its web worker. Values cross the border as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Callable
from typing import Any, Final

import anyio

from browser.live.adapters import Adapters
from browser.live.examples import Block, run_example
from browser.live.group import LiveGroup

PERIOD_S: Final = 0.25
"""Time between two states that a page gets."""


def accept_past_times(loop: Any) -> None:
    """Let ``call_at()`` take a time that has just passed, as other loops of asyncio do.

    It is for Pyodide's loop, which raises ValueError. A slow browser needs longer from a look at
    the clock to the call, and the timeout would never come.
    """

    def call_at(when: float, callback: Callable[..., object], *args: Any, **context: Any) -> Any:
        return loop.call_later(max(0.0, when - loop.time()), callback, *args, **context)

    vars(loop)["call_at"] = call_at


Post = Callable[[str], None]
"""Function that sends a text of JSON to the page."""


class Worker:
    """The live group and the examples of one web worker."""

    def __init__(self, post: Post, block: Block | None = None) -> None:
        """Take a function that waits for a coroutine, or None if the browser has none."""
        self._post = post
        self._block = block
        self._group: LiveGroup | None = None
        self._life: asyncio.Task[None] | None = None
        self._width = 640
        self._lines = _Lines(self._send)
        # A worker has no compiled CRC, and a page has few records.
        warnings.filterwarnings("ignore", "the package 'crc32c' cannot be imported")

    async def call(self, text: str) -> str:
        """Call the method that ``text`` names, and return its result. Both are JSON."""
        given = json.loads(text)
        method = getattr(self, f"on_{given['call']}")
        return json.dumps(await method(**given.get("with", {})))

    async def on_start(self, width: int) -> None:
        """Start the cluster. From now on the page gets its state every ``PERIOD_S``."""
        self._width = width
        logging.getLogger().addHandler(self._lines)
        logging.getLogger("live").setLevel(logging.INFO)
        group = self._group = LiveGroup()
        self._life = asyncio.ensure_future(self._live(group))
        await group.started.wait()

    async def on_produce(self, count: int) -> None:
        """Append records."""
        self._running().produce(count)

    async def on_add(self) -> str:
        """Start a member, and return its name."""
        return self._running().add_member()

    async def on_kill(self, name: str) -> None:
        """Kill a member."""
        await self._running().kill(name)

    async def on_close(self, name: str) -> None:
        """Let a member leave."""
        self._running().close(name)

    async def on_width(self, width: int) -> None:
        """Draw the timeline with this width from now on."""
        self._width = width

    async def on_run(self, code: str) -> bool:
        """Run an example. Return False if it raised."""
        with Adapters(self._block).installed():
            return await run_example(code, lambda text: self._send("output", text), self._block)

    async def stop(self) -> None:
        """End the cluster. A page ends its worker instead."""
        logging.getLogger().removeHandler(self._lines)
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])

    async def _live(self, group: LiveGroup) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.run)
            await group.started.wait()
            while True:
                self._send("state", {**group.state(), "svg": group.drawing(self._width)})
                await anyio.sleep(PERIOD_S)

    def _running(self) -> LiveGroup:
        if self._group is None:
            raise ValueError("the cluster does not run. Start it first")
        return self._group

    def _send(self, kind: str, value: Any) -> None:
        self._post(json.dumps({"kind": kind, "value": value}))


class _Lines(logging.Handler):
    """Handler that sends each line of the log to the page."""

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line."""
        self._send("log", record.getMessage())
