"""The tasks in which the async API runs callbacks, one at a time."""

from __future__ import annotations

import contextvars
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio

from kohort.config import CLOSE_TIMEOUT
from kohort.consumer._background_task import BackgroundTask, event_loop
from kohort.consumer._base import ConsumerBase
from kohort.consumer._callback_queue import ListenerCallback
from kohort.consumer._engine import Engine
from kohort.consumer._signal import TaskSignal
from kohort.errors import IllegalStateError, KafkaError, ReentrantCallError
from kohort.transport import start_soon

logger = logging.getLogger("kohort.consumer")


class AsyncCallbacks(ConsumerBase):
    """The methods that run the engine's callbacks.

    Only one task runs callbacks at a time, and ``_callback_task`` is its id. A poll runs assignors,
    and starts a task of the consumer for listeners, whose end it waits for. Without a poll the
    engine starts this task, if ``rebalance_without_poll`` allows it. close() and unsubscribe() run
    callbacks themselves.

    A cancelled poll does not cancel the task. Otherwise a listener would stop half-way, and the
    group would continue as if it had returned.
    """

    _signal: TaskSignal
    _background_task: BackgroundTask | None
    _loop: Any
    _clock: Callable[[], float]
    _closing: anyio.Event | None
    _pending_close: bool
    _close_options: tuple[bool, float, bool | None]
    """Arguments of a close() inside a callback: autocommit, timeout, leave_group."""
    _active_polls: int

    def _set_up_callbacks(self) -> None:
        self._callback_task: int | None = None
        self._is_spawned = False
        """True from the start of a callback task to its end."""
        self._is_unsubscribing = False

    def _watch_callbacks(self, engine: Engine) -> None:
        """Start a task for callbacks of this engine without a poll, while the consumer exists."""
        self._is_spawned = False  # the task for the previous engine has ended
        perform = weakref.WeakMethod(self._start_unpolled)

        def on_pending() -> None:
            method = perform()
            if method is not None:
                method()

        engine.callback_queue.on_pending = on_pending

    async def _run_callbacks(self) -> None:
        """Wait until the consumer's task has run the queued callbacks, in a call that polls.

        While close() or unsubscribe() runs them in another task, return without a wait.
        """
        pending = self._engine.callback_queue.pending
        self._callback_runner.run_commit_callbacks()
        while self._is_spawned or (self._callback_task is None and pending):
            if self._closing is not None or self._closed or self._pending_close:
                return
            if self._is_spawned or any(isinstance(each, ListenerCallback) for each in pending):
                event = self._signal.event()
                self._spawn(contextvars.copy_context())
                await event.wait()
                continue
            self._callback_task = anyio.get_current_task().id
            try:
                await self._callback_runner.run_all()  # assignors cannot be cancelled
            finally:
                self._callback_task = None
                self._signal.notify()

    def _spawn(self, context: contextvars.Context | None = None) -> None:
        """Start the task for callbacks, unless there is one.

        There is one at a time, because the background task can only cancel the latest.
        """
        if not self._is_spawned and self._background_task is not None:
            self._is_spawned = True
            self._background_task.spawn(self._run_in_task, context)

    def _start_unpolled(self) -> None:
        """Start a task that runs the queued callbacks, if they may run without a poll."""
        if self._may_run_unpolled():
            self._spawn()

    def _may_run_unpolled(self) -> bool:
        """Return True if callbacks may run now without a poll.

        No task runs them, and the caller holds no returned records or the option allows it. After
        ``max_poll_interval_ms`` the caller counts as hung, so callbacks wait for its next poll.
        """
        callback_queue, mode = self._engine.callback_queue, self._config.rebalance_without_poll
        if not callback_queue.pending or self._active_polls or self._callback_task is not None:
            return False
        if mode == "never" or (mode == "idle" and callback_queue.has_returned_records):
            return False
        # The membership uses the same comparison, so both agree at the exact deadline.
        limit = self._config.group.max_poll_interval_ms / 1000
        return (
            callback_queue.last_active_at is None
            or self._clock() < callback_queue.last_active_at + limit
        )

    def _may_run(self) -> bool:
        if self._callback_task is not None or self._closing is not None or self._closed:
            return False
        return bool(self._active_polls) or self._may_run_unpolled()

    async def _run_in_task(self) -> None:
        callback_queue, runner = self._engine.callback_queue, self._callback_runner
        try:
            if not self._may_run():
                return  # a poll was cancelled before, or close() came first
            if callback_queue.last_active_at is None:
                callback_queue.note_call()  # max_poll_interval_ms counts from here
            self._callback_task = anyio.get_current_task().id
            auto_commit = self._engine.auto_commit
            auto_commit.has_unprocessed = (
                not self._active_polls and callback_queue.has_returned_records
            )
            try:
                await runner.run_all()
            finally:
                auto_commit.has_unprocessed = False
                self._callback_task = None
        finally:
            self._is_spawned = False
            self._signal.notify()
            # This also runs after a CancelledError of the callback, which is seen nowhere else.
            if self._pending_close and not (self._active_polls or self._closing or self._closed):
                await self._close_after_callback()
            elif self._closing is None and not self._closed:
                self._start_unpolled()

    async def _close_after_callback(self) -> None:
        try:
            await self._close_pending()
        except KafkaError as error:
            logger.error("close() called in a callback failed: %s", str(error), exc_info=error)

    async def _close_pending(self) -> None:
        autocommit, timeout, leave_group = self._close_options
        await self._close(autocommit=autocommit, timeout=timeout, leave_group=leave_group)

    async def _close(
        self,
        *,
        autocommit: bool,
        timeout: float = CLOSE_TIMEOUT,
        leave_group: bool | None = None,
    ) -> None:
        raise NotImplementedError  # AsyncLifecycle overrides it

    def _check_loop(self) -> None:
        if event_loop() is not self._loop:
            raise IllegalStateError(
                "the consumer cannot be used here: it was started in another event loop. Await its "
                "methods there, or create a new consumer here"
            )

    def _check_not_inside(self, what: str) -> None:
        if self._callback_task is not None and self._callback_task == anyio.get_current_task().id:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )

    async def _call_with_callbacks(
        self,
        function: Callable[[], Awaitable[None]],
        perform: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """Await ``function()`` and run the engine's callbacks meanwhile."""
        done = False
        interrupt: BaseException | None = None

        async def run() -> None:
            nonlocal done
            await function()
            done = True
            self._signal.notify()

        async with anyio.create_task_group() as tasks:
            start_soon(tasks, run)
            try:
                while not done:
                    event = self._signal.event()
                    await perform()
                    if not done:
                        await event.wait()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as raised:  # the task group would wrap it
                interrupt = raised
                tasks.cancel_scope.cancel()
        if interrupt is not None:
            raise interrupt
