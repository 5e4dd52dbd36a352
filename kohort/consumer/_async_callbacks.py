"""The tasks in which the async API runs callbacks, one at a time."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio

from kohort.config import CLOSE_TIMEOUT
from kohort.consumer._background_task import BackgroundTask, event_loop
from kohort.consumer._base import ConsumerBase
from kohort.consumer._callback_queue import ListenerCallback
from kohort.consumer._callback_runner import ASSIGNED, LOST, REVOKED
from kohort.consumer._engine import Engine
from kohort.consumer._signal import TaskSignal
from kohort.errors import IllegalStateError, KafkaError, RebalanceListenerError, ReentrantCallError
from kohort.listeners._dispatch import CallbackName, call_listener, is_awaited
from kohort.transport import start_soon
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.consumer")


class AsyncCallbacks(ConsumerBase):
    """The methods that run the engine's callbacks, in a poll or in a task of the consumer.

    Only one task runs callbacks at a time, and ``_callback_task`` is its id. The consumer starts a
    task if callbacks are queued, no call polls, and ``rebalance_without_poll`` allows it.
    """

    _signal: TaskSignal
    _background_task: BackgroundTask | None
    _loop: Any
    _clock: Callable[[], float]
    _stopping: anyio.Event | None
    _pending_stop: bool
    _leave_group: bool | None
    _active_polls: int

    def _set_up_callbacks(self) -> None:
        self._callback_task: int | None = None
        self._unpolled_task: int | None = None
        self._is_unsubscribing = False
        self._is_spawned = False

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
        """Run the queued callbacks, in a call that polls.

        Wait first for callbacks in the consumer's task, because they may change the assignment.
        """
        while self._unpolled_task is not None:
            await self._signal.event().wait()
        callback_queue = self._engine.callback_queue
        if self._callback_task is not None or not (
            callback_queue.pending or self._is_unsubscribing
        ):
            return  # another task runs them, or there are none
        self._callback_task = anyio.get_current_task().id
        try:
            await self._callback_runner.run_all()
            if self._is_unsubscribing:
                await self._unsubscribe()
        finally:
            self._callback_task = None
            self._signal.notify()

    # -- without a poll -----------------------------------------------------------------------

    def _start_unpolled(self) -> None:
        """Start a task that runs the queued callbacks, if they may run without a poll.

        There is one such task at a time, because the background task can only cancel the latest.
        """
        if self._background_task is not None and not self._is_spawned and self._may_run_unpolled():
            self._is_spawned = True
            self._background_task.spawn(self._run_unpolled)

    def _may_run_unpolled(self) -> bool:
        """Return True if callbacks may run now without a poll.

        No task runs them, and the caller holds no returned records or the option allows it. After
        ``max_poll_interval_ms`` the caller counts as hung, so callbacks wait for its next poll.
        """
        callback_queue, mode = self._engine.callback_queue, self._config.rebalance_without_poll
        if not (callback_queue.pending or self._is_unsubscribing) or self._active_polls:
            return False
        if self._callback_task is not None or self._stopping is not None or self._closed:
            return False
        if mode == "never" or (mode == "idle" and callback_queue.has_returned_records):
            return False
        # The membership uses the same comparison, so both agree at the exact deadline.
        limit = self._config.group.max_poll_interval_ms / 1000
        return (
            callback_queue.last_active_at is None
            or self._clock() < callback_queue.last_active_at + limit
        )

    async def _run_unpolled(self) -> None:
        self._is_spawned = False
        if not self._may_run_unpolled():
            return  # a poll came first
        callback_queue = self._engine.callback_queue
        if callback_queue.last_active_at is None:
            callback_queue.note_call()  # max_poll_interval_ms counts from here
        self._callback_task = self._unpolled_task = anyio.get_current_task().id
        self._callback_runner.commits_unfinished = callback_queue.has_returned_records
        try:
            await self._callback_runner.run_all()
            if self._is_unsubscribing:
                await self._unsubscribe()
        except RebalanceListenerError as error:
            self._callback_runner.keep_listener_error(error)
        finally:
            self._callback_runner.commits_unfinished = False
            self._callback_task = self._unpolled_task = None
            self._signal.notify()
            # This also runs after a CancelledError of the callback, which is seen nowhere else.
            if self._pending_stop and self._stopping is None and not self._closed:
                await self._stop_after_callback()
            else:
                self._start_unpolled()

    async def _stop_after_callback(self) -> None:
        try:
            await self._stop(autocommit=True, leave_group=self._leave_group)
        except KafkaError as error:
            logger.error("stop() called in a callback failed: %s", str(error), exc_info=error)

    async def _stop(self, *, autocommit: bool, leave_group: bool | None = None) -> None:
        raise NotImplementedError  # AsyncLifecycle overrides itcycle overrides it

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

    # -- unsubscribing ------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, and remove all topics.

        The commit and the leave continue in the background. If the methods of the listener are
        coroutines, the next getmany() or stop() calls it, and the partitions stay assigned until
        then. Raises RebalanceListenerError, and ReentrantCallError inside a callback.
        """
        self._check_usable()
        if self._background_task is None:
            self._engine.subscription.unsubscribe()
            return
        self._check_loop()
        self._check_not_inside("unsubscribe()")
        self._engine.callback_queue.has_returned_records = False
        self._engine.note_consumed()
        if self._callback_task is not None or self._must_await_listener():
            self._is_unsubscribing = True
            self._signal.notify()
            self._engine.callback_queue.note_call()
            self._start_unpolled()
            return
        self._callback_task = anyio.get_current_task().id
        try:
            self._call_plain_listener()
        finally:
            self._callback_task = None
            self._engine.drop_subscription()
            self._signal.notify()
        error = self._callback_runner.take_listener_error()
        if error is not None:
            raise error

    def _must_await_listener(self) -> bool:
        owned = self._engine.is_subscribed and self._engine.subscription.assigned()
        return bool(owned) and is_awaited(self._callback_runner.listener)

    def _call_plain_listener(self) -> None:
        """Call the listener for the queued assignment, and then for the end of the subscription."""
        engine = self._engine
        calls: list[tuple[CallbackName, frozenset[TopicPartition]]] = []
        for pending in list(engine.callback_queue.pending):
            if isinstance(pending, ListenerCallback) and not pending.is_finished:
                if pending.name == ASSIGNED:
                    calls.append((ASSIGNED, pending.partitions))
                pending.finish()
        owned = engine.subscription.assigned()
        if owned:
            calls.append((LOST if engine.is_membership_lost() else REVOKED, owned))
        if (
            self._callback_runner.listener is None
            or not engine.is_subscribed
            or engine.coordinator is None
        ):
            return
        for name, partitions in calls:
            error = call_listener(self._callback_runner.listener, name, partitions)
            if error is not None:
                self._callback_runner.keep_listener_error(error)

    async def _unsubscribe(self) -> None:
        deadline = anyio.current_time() + CLOSE_TIMEOUT
        try:
            error = await self._callback_runner.leave("the consumer unsubscribed", True, deadline)
        finally:
            if self._is_unsubscribing:  # otherwise subscribe() was called meanwhile
                self._is_unsubscribing = False
                self._engine.subscription.unsubscribe()
            self._engine.finish_leave()
        if error is not None:
            raise error
