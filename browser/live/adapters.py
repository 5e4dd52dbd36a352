"""Names of kohort that need threads and sockets, on one event loop without them.

A web worker has neither. There ``Cluster`` is a MemoryCluster, and ``KafkaConsumer`` waits for the
methods of AsyncKafkaConsumer. Consumers without a connect hook use that of the latest cluster.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, NoReturn, Self

import kohort
import kohort.testing
from browser.live.examples import Block
from kohort import AsyncKafkaConsumer
from kohort.errors import KafkaError
from kohort.network import ByteConnection
from kohort.testing import MemoryCluster


class NoBlockingError(KafkaError):
    """This browser cannot wait inside a function without ``await``."""


def refuse(main: Coroutine[Any, Any, Any]) -> NoReturn:
    """Raise the error of browsers that cannot block. It is a Block."""
    main.close()
    raise NoBlockingError(
        "the sync API cannot run in this browser: it lacks JavaScript Promise Integration. Use "
        "Chrome or Edge 137 or newer, or run an example with AsyncKafkaConsumer"
    )


class Adapters:
    """Adapters that share a way to block and the latest cluster."""

    def __init__(self, block: Block | None) -> None:
        """Take the function that waits for a coroutine, or None if there is none."""
        self.block: Block = block or refuse
        self.latest: MemoryCluster | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the names in ``kohort`` and ``kohort.testing`` inside the block."""
        names = [
            (kohort, "KafkaConsumer", self.consumer()),
            (kohort, "AsyncKafkaConsumer", self.async_consumer()),
            (kohort.testing, "Cluster", self.cluster()),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in names]
        for module, name, adapter in names:
            setattr(module, name, adapter)
        try:
            yield
        finally:
            for module, name, original in before:
                setattr(module, name, original)

    def cluster(self) -> type[MemoryCluster]:
        """Return the class for ``kohort.testing.Cluster``."""
        adapters = self

        class Cluster(MemoryCluster):
            async def __aenter__(self) -> Cluster:
                await super().__aenter__()
                adapters.latest = self
                return self

            def __enter__(self) -> Self:
                self._life = _Life(self)
                adapters.block(self._life.start())
                return self

            def __exit__(self, *_: object) -> None:
                adapters.block(self._life.stop())

            def wait_until(self, predicate: Callable[[], Any], timeout: float = 10.0) -> Any:
                return adapters.block(super().wait_until(predicate, timeout))

            wait_until_async = MemoryCluster.wait_until

        return Cluster

    def async_consumer(self) -> type[AsyncKafkaConsumer[Any, Any]]:
        """Return the class for ``kohort.AsyncKafkaConsumer``."""
        adapters = self

        class Consumer(AsyncKafkaConsumer[Any, Any]):
            def __init__(self, *topics: str, **options: Any) -> None:
                super().__init__(*topics, **{"connect": adapters.connect, **options})

        return Consumer

    def consumer(self) -> type:
        """Return the class for ``kohort.KafkaConsumer``."""
        block, inner = self.block, self.async_consumer()

        class Consumer:
            def __init__(self, *topics: str, **options: Any) -> None:
                self._timeout_ms = options.pop("consumer_timeout_ms", None)
                self._consumer = inner(*topics, **options)

            def __getattr__(self, name: str) -> Any:
                found = getattr(self._consumer, name)
                if not inspect.iscoroutinefunction(found):
                    return found
                return functools.wraps(found)(lambda *args, **named: block(found(*args, **named)))

            def __enter__(self) -> Self:
                block(self._consumer.__aenter__())
                return self

            def __exit__(self, *error: Any) -> None:
                block(self._consumer.__aexit__(*error))

            def __iter__(self) -> Self:
                return self

            def __next__(self) -> Any:
                seconds = None if self._timeout_ms is None else self._timeout_ms / 1000
                try:
                    return block(asyncio.wait_for(anext(self._consumer), seconds))
                except (StopAsyncIteration, TimeoutError):
                    raise StopIteration from None

        return Consumer

    async def connect(self, host: str, port: int) -> ByteConnection:
        """Connect to a broker of the latest cluster. It is a connect hook."""
        if self.latest is None:
            raise ConnectionRefusedError(
                f"a page has no network, so {host}:{port} cannot be reached. Start a Cluster"
            )
        return await self.latest.connect(host, port)


class _Life:
    """An async context manager in a task, because one task has to enter and leave it."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Start the task, and wait until it has entered the manager."""
        entered = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(entered))
        waiting = asyncio.ensure_future(entered.wait())
        await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Let the task leave the manager."""
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def _run(self, entered: asyncio.Event) -> None:
        async with self._manager:
            entered.set()
            await self._stopped.wait()
