"""The figures of metrics(), given to a function of the caller's every so often."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from kohort.consumer._callback_queue import AssignorCallback
from kohort.consumer._metrics import collect
from kohort.errors import KafkaError

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

logger = logging.getLogger("kohort.consumer")


async def report_stats(engine: Engine, hook: Callable[[dict[str, Any]], Any]) -> None:
    """Run until cancelled. The hook is called where listeners are: on the caller's side."""

    def call() -> None:
        try:
            hook(collect(engine))
        except Exception:
            logger.exception("on_stats raised")

    while True:
        await anyio.sleep(engine.config.stats_interval_ms / 1000)
        with suppress(KafkaError):  # Ctrl-C came in the midst of it; there will be others
            await engine.callback_queue.call(
                AssignorCallback(engine.callback_queue.engine_loop, call)
            )
