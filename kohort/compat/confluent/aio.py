"""``AIOConsumer`` and ``AsyncDeserializingConsumer`` of ``confluent_kafka.aio``.

A consumer has a thread, in which its blocking calls run one after another. A callback of the
program runs in the event loop while that thread waits for it. Calls that the callback makes are
handed to the waiting thread, so they need no second one and wait for nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import queue
import time
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

from kohort.compat.confluent._builders import Deserializers, awaited, run_awaited
from kohort.compat.confluent._consumer import PREFETCHED, Consumer
from kohort.compat.confluent._deserializing import (
    CLUSTER_ID_S,
    ConsumeError,
    KeyDeserializationError,
    MessageField,
    ValueDeserializationError,
    context_of,
)
from kohort.compat.confluent._errors import CLOSED
from kohort.compat.confluent._values import Message

__all__ = ["AIOConsumer", "AsyncDeserializingConsumer"]

_SLICE_S = 0.2
"""Longest wait in the thread, and so the longest time that a cancelled call keeps it busy."""
_CALLBACKS = ("error_cb", "on_commit", "stats_cb", "throttle_cb")
_REBALANCE = ("on_assign", "on_revoke", "on_lost")

Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class _Inbox:
    """Calls of one callback for the thread that waits for the callback."""

    current: ContextVar[_Inbox | None] = ContextVar("inbox", default=None)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    async def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the waiting thread."""
        outcome: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put((function, outcome))
        return await outcome

    def run(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run a callback in the event loop, and its calls in this thread, until it returns."""
        running = asyncio.run_coroutine_threadsafe(self._run(callback, arguments), self._loop)
        running.add_done_callback(lambda _: self._jobs.put(None))
        while (job := self._jobs.get()) is not None:
            self._do(*job)
        return running.result()

    async def _run(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.current.set(self)
        result = callback(*arguments)
        return await result if inspect.isawaitable(result) else result

    def _do(self, function: Callable[[], Any], outcome: asyncio.Future[Any]) -> None:
        try:
            finish = partial(_set, outcome.set_result, outcome, function())
        except BaseException as error:
            finish = partial(_set, outcome.set_exception, outcome, error)
        self._loop.call_soon_threadsafe(finish)


def _set(setter: Callable[[Any], None], outcome: asyncio.Future[Any], value: Any) -> None:
    if not outcome.done():  # it may have been cancelled
        setter(value)


class AIOConsumer:
    """Consumer for asyncio. Its methods are those of Consumer as coroutines.

    Callbacks may be coroutine functions, and may await methods of the consumer. A cancelled call
    loses no message. Tasks may share a consumer, whose calls run one after another.
    """

    __module__ = "kohort.compat.confluent.aio"

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: Executor | None = None,
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._turn = asyncio.Lock()
        options = {
            name: self._in_loop(value) if name in _CALLBACKS and callable(value) else value
            for name, value in consumer_conf.items()
        }
        self._consumer = Consumer(options)
        self._owns_executor = executor is None
        self.executor: Executor = executor or ThreadPoolExecutor(max_workers, "kohort-aio")

    def _in_loop(self, callback: Callable[..., Any], *, is_rebalance: bool = False) -> Any:
        def call(*arguments: Any) -> Any:
            given = (self, *arguments[1:]) if is_rebalance else arguments
            return _Inbox(self._loop).run(callback, given)

        return call

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a method in the thread. If this is cancelled, the method still ends."""
        if self._closed:
            raise RuntimeError(CLOSED)
        function = partial(method, *args, **kwargs)
        if (inbox := _Inbox.current.get()) is not None:
            return await inbox.call(function)
        async with self._turn:
            running = self._loop.run_in_executor(self.executor, function)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await self._end_cancelled(method, running)
                raise

    async def _end_cancelled(self, method: Any, running: asyncio.Future[Any]) -> None:
        """Wait for a call whose caller was cancelled, and return its messages to the consumer."""
        try:
            found = await running
        except Exception:
            return
        if method in (self._consumer.consume, self._consumer.poll) and found:
            self._consumer._put_back(found if isinstance(found, list) else [found])

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or error, or None if there is none within ``timeout`` seconds."""
        await self._wait(1, -1 if timeout is None else timeout, PREFETCHED)
        found: Message | None = await self._call(self._consumer.poll, 0.0)
        return found

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return ``num_messages`` messages and errors, or fewer after ``timeout`` seconds."""
        await self._wait(num_messages, timeout, 0)
        found: list[Message] = await self._call(self._consumer.consume, num_messages, 0)
        return found

    async def _wait(self, count: int, timeout: float, at_once: int) -> None:
        """Wait until ``count`` messages are buffered, or until the timeout."""
        end = math.inf if timeout < 0 else time.monotonic() + timeout
        while not self._consumer._has(count) and (left := end - time.monotonic()) > 0:
            await self._call(self._consumer._wait, count, min(left, _SLICE_S), at_once)

    async def subscribe(self, topics: list[str], *args: Any, **kwargs: Any) -> None:
        """Subscribe to topics. The callbacks get this consumer."""
        given = {**dict(zip(_REBALANCE, args, strict=False)), **kwargs}
        wrapped = {
            name: value if value is None else self._in_loop(value, is_rebalance=True)
            for name, value in given.items()
        }
        await self._call(self._consumer.subscribe, topics, **wrapped)

    async def close(self) -> None:
        """Commit if that is automatic, call ``on_revoke``, and leave the group."""
        if self._closed:
            return
        try:
            await self._call(self._consumer.close)
        finally:
            self._closed = True
            if self._owns_executor:
                self.executor.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def unsubscribe(self, *args: Any, **kwargs: Any) -> Any:
        """Leave the group, and drop all topics and partitions."""
        return await self._call(self._consumer.unsubscribe, *args, **kwargs)

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        """Commit a message, offsets, or all stored offsets."""
        return await self._call(self._consumer.commit, *args, **kwargs)

    async def seek(self, *args: Any, **kwargs: Any) -> Any:
        """Continue at the offset of a partition."""
        return await self._call(self._consumer.seek, *args, **kwargs)

    async def pause(self, *args: Any, **kwargs: Any) -> Any:
        """Return no messages of partitions until ``resume()``."""
        return await self._call(self._consumer.pause, *args, **kwargs)

    async def resume(self, *args: Any, **kwargs: Any) -> Any:
        """Return messages of partitions again."""
        return await self._call(self._consumer.resume, *args, **kwargs)

    async def store_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Store offsets for the next commit."""
        return await self._call(self._consumer.store_offsets, *args, **kwargs)

    async def committed(self, *args: Any, **kwargs: Any) -> Any:
        """Return the committed offsets of partitions."""
        return await self._call(self._consumer.committed, *args, **kwargs)

    async def assign(self, *args: Any, **kwargs: Any) -> Any:
        """Read exactly these partitions."""
        return await self._call(self._consumer.assign, *args, **kwargs)

    async def unassign(self, *args: Any, **kwargs: Any) -> Any:
        """Read no partitions."""
        return await self._call(self._consumer.unassign, *args, **kwargs)

    async def incremental_assign(self, *args: Any, **kwargs: Any) -> Any:
        """Read these partitions as well."""
        return await self._call(self._consumer.incremental_assign, *args, **kwargs)

    async def incremental_unassign(self, *args: Any, **kwargs: Any) -> Any:
        """Read these partitions no more."""
        return await self._call(self._consumer.incremental_unassign, *args, **kwargs)

    async def assignment(self, *args: Any, **kwargs: Any) -> Any:
        """Return the partitions that are read."""
        return await self._call(self._consumer.assignment, *args, **kwargs)

    async def position(self, *args: Any, **kwargs: Any) -> Any:
        """Return the offsets after the latest returned messages."""
        return await self._call(self._consumer.position, *args, **kwargs)

    async def consumer_group_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Return the membership for a transactional producer."""
        return await self._call(self._consumer.consumer_group_metadata, *args, **kwargs)

    async def set_sasl_credentials(self, *args: Any, **kwargs: Any) -> Any:
        """Set the user and password of later logins."""
        return await self._call(self._consumer.set_sasl_credentials, *args, **kwargs)

    async def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """Return the brokers, topics and partitions of the cluster."""
        return await self._call(self._consumer.list_topics, *args, **kwargs)

    async def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """Return the id of the cluster."""
        return await self._call(self._consumer.cluster_id, *args, **kwargs)

    async def get_watermark_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Return the first offset, and the offset after the last record."""
        return await self._call(self._consumer.get_watermark_offsets, *args, **kwargs)

    async def offsets_for_times(self, *args: Any, **kwargs: Any) -> Any:
        """Return the first offsets at or after timestamps."""
        return await self._call(self._consumer.offsets_for_times, *args, **kwargs)


class AsyncDeserializingConsumer(AIOConsumer):
    """An AIOConsumer that deserializes keys and values, made by ``await``.

    The options ``key.deserializer`` and ``value.deserializer`` are callables
    ``(data, SerializationContext)``, or coroutine functions. Or ``key.deserializer.builder`` and
    ``value.deserializer.builder`` make them, and :meth:`close` closes what they made.
    """

    __module__ = "kohort.compat.confluent.aio"

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._deserializers = Deserializers(conf)
        self._arguments = kwargs

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._made().__await__()

    async def _made(self) -> Self:
        try:
            await run_awaited(self._deserializers.build())
            super().__init__(self._deserializers.options, **self._arguments)
        except BaseException:
            await run_awaited(self._deserializers.close())
            raise
        self._deserializers.set_resolver(
            "set_async_cluster_id_resolver", lambda: self.cluster_id(timeout=CLUSTER_ID_S)
        )
        return self

    async def close(self) -> None:
        """Close the consumer as :meth:`AIOConsumer.close` does, then what builders made."""
        await super().close()
        await run_awaited(self._deserializers.close())

    async def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message with its key and value deserialized, or None.

        Raises ConsumeError in place of a message with an error, and KeyDeserializationError or
        ValueDeserializationError, which have the message.
        """
        message = await super().poll(timeout)
        if message is None:
            return None
        if message.error() is not None:
            raise ConsumeError(message.error(), kafka_message=message)
        return await self._deserialize(message)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages with their keys and values deserialized, and errors as they are."""
        found = await super().consume(num_messages, timeout)
        return [await self._deserialize(each) if each.error() is None else each for each in found]

    async def _deserialize(self, message: Message) -> Message:
        key, value = message.key(), message.value()
        if self._deserializers.key is not None:
            try:
                context = context_of(message, MessageField.KEY)
                key = await awaited(self._deserializers.key(key, context))
            except Exception as error:
                raise KeyDeserializationError(exception=error, kafka_message=message) from error
        if self._deserializers.value is not None:
            try:
                context = context_of(message, MessageField.VALUE)
                value = await awaited(self._deserializers.value(value, context))
            except Exception as error:
                raise ValueDeserializationError(exception=error, kafka_message=message) from error
        message.set_key(key)
        message.set_value(value)
        return message
