"""The tasks in which the async API runs callbacks, one at a time."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import anyio

from kohort.config import ConsumerConfig
from kohort.consumer.driver._background_task import BackgroundTask
from kohort.consumer.driver._callback_runner import CallbackRunner
from kohort.consumer.driver._life import ConsumerLife
from kohort.consumer.engine._callback_queue import ListenerCallback
from kohort.consumer.engine._engine import Engine
from kohort.errors import KafkaError, ReentrantCallError
from kohort.logs import error_text, get_logger
from kohort.transport import TaskSignal, start_soon

logger = get_logger("kohort.consumer")


class AsyncCallbacks:
    """The runs of the engine's callbacks, of which only one at a time is in progress.

    A poll runs assignors, and starts a task of the consumer for listeners, whose end it waits for.
    Without a poll the engine starts this task, if ``rebalance_without_poll`` allows it. The latest
    poll must then be less than ``max_poll_interval_ms`` ago. close() and unsubscribe() run
    callbacks themselves.

    A cancelled poll does not cancel the task. Otherwise a listener would stop half-way, and the
    group would continue as if it had returned.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        life: ConsumerLife,
        signal: TaskSignal,
        close_pending: Callable[[], Awaitable[None]],
        owner: Callable[[], object],
    ) -> None:
        self._config = config
        self._life = life
        self._signal = signal
        self._close_pending = weakref.WeakMethod(close_pending)
        """Method of the driver that runs a close() which was called in a callback."""
        self._owner = owner
        """Function that returns the consumer, or None if nothing refers to it."""
        self._engine: Engine
        self._runner: CallbackRunner
        self._background_task: BackgroundTask | None = None
        self.task_id: int | None = None
        """Id of the task that runs callbacks."""
        self.is_spawned = False
        """True from the start of a callback task to its end."""
        self.active_polls = 0

    def serve(self, engine: Engine, runner: CallbackRunner) -> None:
        """Run the callbacks of this engine from now on, also without a poll."""
        self._engine, self._runner = engine, runner
        self._background_task = None
        self.is_spawned = False  # the task for the previous engine has ended
        start = weakref.WeakMethod(self._start_unpolled)

        def on_pending() -> None:
            method = start()
            if method is not None:
                method()

        engine.callback_queue.on_pending = on_pending

    def use(self, background_task: BackgroundTask) -> None:
        """Start callback tasks in this background task."""
        self._background_task = background_task

    @property
    def is_running(self) -> bool:
        """True while a task runs callbacks."""
        return self.task_id is not None

    @property
    def is_inside(self) -> bool:
        """True if the calling task runs callbacks, so that this is a callback's call."""
        return self.task_id is not None and self.task_id == anyio.get_current_task().id

    def check_not_inside(self, what: str) -> None:
        """Raise ReentrantCallError in a callback."""
        if self.is_inside:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )

    async def run(self) -> None:
        """Wait until the consumer's task has run the queued callbacks, in a call that polls.

        While close() or unsubscribe() runs them in another task, return without a wait.
        """
        pending = self._engine.callback_queue.pending
        self._runner.run_commit_callbacks()
        while self.is_spawned or (self.task_id is None and pending):
            if self._life.is_ending or self._life.close_request:
                return
            if self.is_spawned or any(isinstance(each, ListenerCallback) for each in pending):
                event = self._signal.event()
                self._spawn(contextvars.copy_context())
                await event.wait()
                continue
            self.task_id = anyio.get_current_task().id
            try:
                await self._runner.run_all()  # assignors cannot be cancelled
            finally:
                self.task_id = None
                self._signal.notify()

    def _spawn(self, context: contextvars.Context | None = None) -> None:
        """Start the task for callbacks, unless there is one.

        There is one at a time, because the background task can only cancel the latest.
        """
        close_pending, consumer = self._close_pending(), self._owner()
        if self.is_spawned or self._background_task is None:
            return
        if close_pending is None or consumer is None:
            return
        self.is_spawned = True
        run = partial(self._run_in_task, close_pending, consumer)
        self._background_task.spawn(run, context)

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
        if not callback_queue.pending or self.active_polls or self.task_id is not None:
            return False
        if mode == "never" or (mode == "idle" and callback_queue.has_returned_records):
            return False
        # The membership uses the same comparison, so both agree at the exact deadline.
        limit = self._config.group.max_poll_interval_ms / 1000
        return (
            callback_queue.last_active_at is None
            or callback_queue.clock() < callback_queue.last_active_at + limit
        )

    def _may_run(self) -> bool:
        if self.task_id is not None or self._life.is_ending:
            return False
        return bool(self.active_polls) or self._may_run_unpolled()

    async def _run_in_task(
        self, close_pending: Callable[[], Awaitable[None]], _consumer: object
    ) -> None:
        """Run the queued callbacks. The task keeps the consumer alive until it has ended."""
        callback_queue, life = self._engine.callback_queue, self._life
        try:
            if not self._may_run():
                return  # a poll was cancelled before, or close() came first
            if callback_queue.last_active_at is None:
                callback_queue.note_call()  # max_poll_interval_ms counts from here
            self.task_id = anyio.get_current_task().id
            auto_commit = self._engine.auto_commit
            auto_commit.has_unprocessed = (
                not self.active_polls and callback_queue.has_returned_records
            )
            try:
                await self._runner.run_all()
            finally:
                auto_commit.has_unprocessed = False
                self.task_id = None
        finally:
            self.is_spawned = False
            self._signal.notify()
            # This also runs after a CancelledError of the callback, which is seen nowhere else.
            if life.close_request and not (self.active_polls or life.is_ending):
                try:
                    await close_pending()
                except KafkaError as error:
                    logger.error(
                        "close() called in a callback failed: %s", error_text(error), exc_info=error
                    )
            elif not life.is_ending:
                self._start_unpolled()

    def enter_poll(self) -> None:
        """Note that a call polls, so that callbacks may run in it."""
        self._engine.callback_queue.enter_poll()
        self.active_polls += 1

    def leave_poll(self) -> None:
        """Note that a call of :meth:`enter_poll` has ended."""
        self.active_polls -= 1
        if not self.active_polls:
            self._engine.callback_queue.leave_poll()
            self._start_unpolled()

    async def enter_callback(self) -> None:
        """Wait for the end of other callbacks, and run callbacks in the calling task."""
        while self.task_id is not None:
            await self._signal.event().wait()
        self.task_id = anyio.get_current_task().id

    def leave_callback(self) -> None:
        """End what :meth:`enter_callback` began."""
        self.task_id = None
        self._signal.notify()

    async def call(
        self,
        function: Callable[[], Awaitable[None]],
        perform: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """Await ``function()`` and run the engine's callbacks by ``perform`` meanwhile."""
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
