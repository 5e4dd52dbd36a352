"""The synchronous face from its first call to close(): its thread, and whose turn it is."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from kohort.config import ConsumerConfig
from kohort.consumer import _arguments
from kohort.consumer._base import CLOSE_TIMEOUT, ConsumerBase, leaving_seconds
from kohort.consumer._engine import DISCONNECT_SECONDS, Engine
from kohort.consumer._performer import Performer, run_inline
from kohort.consumer._signal import SLICE, ThreadSignal
from kohort.consumer._thread import CoreThread
from kohort.consumer._turn import Turn
from kohort.errors import KafkaError, RebalanceListenerError
from kohort.listeners import CallbackName, call_listener
from kohort.types import TopicPartition

T = TypeVar("T")


class SyncLife(ConsumerBase):
    """Everything of KafkaConsumer that is not about records, positions and offsets."""

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        self._signal = ThreadSignal()
        self._turn = Turn()
        self._thread: CoreThread | None = None
        self._close_later: tuple[bool, float | None, bool | None] | None = None
        self._closing_until: float | None = None
        self._commits: set[Future[None]] = set()
        engine = Engine(config, notify=self._signal.notify, clock=time.monotonic)
        self._mailbox = engine.mailbox
        self._prepare(config, engine, topics)

        async def call(function: Callable[[], Awaitable[T]]) -> T:
            return self._call(function)

        async def serve(
            function: Callable[[], Awaitable[None]],
            perform: Callable[[], Coroutine[Any, Any, None]],
        ) -> None:
            future = self._core().call(function)
            future.add_done_callback(lambda _: self._signal.notify())
            while True:
                self._signal.clear()
                run_inline(perform())
                if future.done():
                    return future.result()
                self._signal.wait(1.0)

        async def invoke(
            listener: Any, callback: CallbackName, partitions: frozenset[TopicPartition]
        ) -> RebalanceListenerError | None:
            return call_listener(listener, callback, partitions)

        self._performer = Performer(engine, call, serve, invoke)

    # -- the core -----------------------------------------------------------------------------

    def _core(self) -> CoreThread:
        self._check_usable()
        if self._thread is None:
            thread = CoreThread(self._engine, f"kohort-heartbeat-{self._config.client.client_id}")
            self._engine.mailbox.core = thread
            self._thread, self._pid = thread, os.getpid()
            thread.start()
        return self._thread

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        future = self._core().call(function)
        while not future.done():
            if not self._turn.mine:  # a callback's calls are of poll(), which sees to it itself
                self._engine.mailbox.take_wakeup()
            futures.wait([future], SLICE)
        return future.result()

    def _inside(self, what: str, function: Callable[[], T]) -> T:
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
        self._core()
        nested = self._turn.mine
        try:
            self._turn.take(what)
            self._engine.mailbox.entered_poll()
            self._engine.note_consumed()
            return function()
        finally:
            if not nested:
                try:
                    self._go_out()
                finally:
                    self._go_out()  # Ctrl-C in the midst of it must not leave the door shut
                    if self._close_later is not None:
                        self._close(*self._close_later)

    def _go_out(self) -> None:
        if self._turn.mine:
            self._engine.mailbox.left_poll()
            self._turn.give_back()

    def _timeout(self, timeout_ms: float | None) -> float | None:
        timeout = _arguments.timeout_seconds(timeout_ms, self._config.client.request_timeout_ms)
        if timeout_ms is None and timeout is not None and self._closing_until is not None:
            return min(timeout, max(0.1, self._closing_until - time.monotonic()))
        return timeout

    # -- the end ------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End with WakeupError what waits: poll(), iteration, commit() and the look-ups.

        From any thread, or a signal handler. If nothing waits, the next of these raises; close()
        and unsubscribe() never do. Nothing is lost: poll on, or close. A commit that was being
        waited for may still be done.
        """
        self._engine.mailbox.wake()
        self._signal.notify()

    def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        leave_group: bool | None = None,
    ) -> None:
        """Commit (if automatic), call the listener, leave the group, end the thread.

        Takes 5 s at most, or ``timeout_ms``. May be called twice. From inside a listener, or from
        a signal handler inside poll(), it returns at once, and poll() closes on its way out.

        ``leave_group=False`` keeps the place in the group until the session expires, so that a
        restart goes unnoticed: the default of a static member, who has a ``group_instance_id``.
        True: its partitions go to others at once, the default of all others (KIP-1092).
        """
        timeout = _arguments.timeout_seconds(timeout_ms)
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._turn.mine:
            self._close_later = (autocommit, timeout, leave_group)
            self._signal.notify()
            return
        self._close(autocommit, timeout, leave_group)

    def _close(self, autocommit: bool, timeout: float | None, leave_group: bool | None) -> None:
        self._turn.take("close()")
        self._engine.subscription.bell.ring()
        try:
            if self._close_later is None:
                self._engine.note_consumed()
            self._close_later = None
            limit = CLOSE_TIMEOUT if timeout is None else timeout
            self._close_now(autocommit, limit, leave_group)
        finally:
            self._turn.give_back()

    def _close_now(self, autocommit: bool, limit: float, leave_group: bool | None) -> None:
        begun = time.monotonic()
        deadline = begun + leaving_seconds(limit)
        thread = self._thread
        error: KafkaError | None = None
        try:
            if thread is not None and not self._engine.ended:
                self._await_commits(deadline - limit / 2)
                reason = "the consumer was closed"
                error = self._leave(reason, autocommit, deadline, leave_group)
        finally:
            self._closed = True
            if thread is not None:
                thread.stop(max(2 * DISCONNECT_SECONDS, begun + limit - time.monotonic()))
            self._performer.abandon()
            self._performer.call_back()
            self._close_deserializers()
        if error is not None:
            raise error

    def _await_commits(self, deadline: float) -> None:
        """Wait for those that were begun without waiting."""
        while self._commits and (left := deadline - time.monotonic()) > 0:
            self._signal.clear()
            if self._commits:
                self._signal.wait(left)

    def _leave(
        self, reason: str, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        """Give everything up in good order; returns what a listener raised."""
        self._closing_until = deadline
        try:
            return run_inline(
                self._performer.leave(reason, autocommit, deadline, leave_group=leave_group)
            )
        finally:
            self._closing_until = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self.close(autocommit=exc_type is None)

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and not self._closed and self._pid == os.getpid():
            self._warn_unclosed()
            thread.request_stop()
