"""The caller's side of callbacks: listeners, assignors and commits before a revocation.

Both APIs share these coroutines. In the sync API they never suspend, because calls to the engine
block the thread instead. So :func:`run_inline` runs them to their end in one step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from kohort.consumer.engine._autocommit import CallEngine
from kohort.consumer.engine._callback_queue import (
    AssignorCallback,
    ListenerCallback,
    PendingCallback,
)
from kohort.consumer.engine._engine import Engine, LeaveCause
from kohort.errors import KafkaError, RebalanceListenerError, WakeupError
from kohort.listeners._dispatch import CallbackName
from kohort.logs import error_text, get_logger
from kohort.types import RebalanceContext, TopicPartition

logger = get_logger("kohort.consumer")

T = TypeVar("T")

ASSIGNED: CallbackName = "on_partitions_assigned"
REVOKED: CallbackName = "on_partitions_revoked"
LOST: CallbackName = "on_partitions_lost"
END_SESSIONS_SECONDS = 0.2
"""Maximum seconds that closing waits to end the fetch sessions, which use broker memory."""


class CallEngineWithCallbacks(Protocol):
    """A :class:`CallEngine` that runs the callbacks of the engine by ``perform`` meanwhile."""

    async def __call__(
        self,
        function: Callable[[], Awaitable[None]],
        perform: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None: ...


class CallListener(Protocol):
    """A function that calls a method of a listener and returns its error."""

    async def __call__(
        self,
        listener: Any,
        callback: CallbackName,
        partitions: frozenset[TopicPartition],
        rebalance: RebalanceContext,
    ) -> RebalanceListenerError | None: ...


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("internal error in kohort: a coroutine of the sync API suspended")


class CallbackRunner:
    """Runner of the callbacks in the callback queue, one after the other."""

    def __init__(self, engine: Engine, invoke: CallListener) -> None:
        self.listener: Any = None
        self._engine = engine
        self._call_listener = invoke
        self._call_engine: CallEngine
        self._call_with_callbacks: CallEngineWithCallbacks
        self._clock = engine.callback_queue.clock
        self._listener_error: RebalanceListenerError | None = None
        self._rebalance_ended = False

    def connect(self, call: CallEngine, serve: CallEngineWithCallbacks) -> None:
        """Set the functions that call the engine. They refer to the consumer weakly."""
        self._call_engine, self._call_with_callbacks = call, serve

    @property
    def has_callbacks(self) -> bool:
        """True if a callback is queued."""
        callback_queue = self._engine.callback_queue
        return bool(callback_queue.pending or callback_queue.commit_callbacks)

    async def run_all(self) -> None:
        """Run all queued callbacks."""
        pending = self._engine.callback_queue.pending
        while pending:
            # It stays in the queue until it is done (see _delivery, rule 4).
            first = pending[0]
            if not first.is_finished:
                await self._run(first)
            if pending and pending[0] is first:
                pending.popleft()
        self.run_commit_callbacks()

    def run_commit_callbacks(self) -> None:
        """Call the callbacks of finished commits, and log their errors."""
        callbacks = self._engine.callback_queue.commit_callbacks
        while callbacks:
            callback = callbacks.popleft()
            try:
                callback.function(callback.offsets, callback.error)
            except Exception:
                logger.exception("the callback of a commit raised")

    def raise_errors(self, *, timed_out: bool) -> None:
        """Raise the first listener error, WakeupError, or an error that the engine reported.

        A listener error waits until the rebalance ends or the poll has timed out, so that one
        rebalance raises one error.
        """
        if self._listener_error is not None and (timed_out or self._rebalance_ended):
            error, self._listener_error = self._listener_error, None
            raise error
        engine = self._engine
        if engine.callback_queue.is_wakeup_requested:
            engine.callback_queue.raise_wakeup()
        errors = engine.errors.waiting
        if errors:
            raise errors.popleft()
        if engine.ended:
            engine.check_running()

    async def _run(self, pending: PendingCallback) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            match pending:
                case ListenerCallback():
                    await self._run_listener(pending.name, pending.partitions, pending.rebalance)
                case AssignorCallback(assign=assign):
                    result = assign()
        except Exception as raised:
            error = raised
        except BaseException as raised:
            # Ctrl-C or a cancellation is raised to the caller. An interrupted listener counts as
            # called. The group cannot continue without the result of an assignor.
            if not isinstance(pending, ListenerCallback):
                error = KafkaError(f"interrupted by {raised!r}")
            raise
        finally:
            pending.finish(result, error)

    async def _run_listener(
        self,
        callback: CallbackName,
        partitions: frozenset[TopicPartition],
        rebalance: RebalanceContext,
    ) -> None:
        """Commit if partitions are revoked, call the listener, then remove those partitions."""
        subscription = self._engine.subscription
        self._rebalance_ended = False
        try:
            if callback == REVOKED:
                await self._engine.auto_commit.before_revocation(partitions, self._call_engine)
            if self.listener is not None:
                error = await self._call_listener(self.listener, callback, partitions, rebalance)
                if error is not None:
                    self.keep_listener_error(error)
        finally:
            self._rebalance_ended = callback == ASSIGNED
            if callback != ASSIGNED:
                subscription.revoke(partitions)

    def keep_listener_error(self, error: RebalanceListenerError) -> None:
        """Keep the first error of a listener for the caller. Log later ones."""
        if self._listener_error is None:
            self._listener_error = error
        else:
            logger.error("%s. poll() raises the error before it", error_text(error), exc_info=error)

    def take_listener_error(self) -> RebalanceListenerError | None:
        """Return the kept error of a listener and clear it."""
        error, self._listener_error = self._listener_error, None
        return error

    async def leave(
        self,
        cause: LeaveCause,
        autocommit: bool,
        deadline: float,
        *,
        leave_group: bool | None = None,
    ) -> KafkaError | None:
        """Commit, call the listener for the assigned partitions, and leave the group.

        Return the error of the listener. The engine queues the callbacks while it leaves, as in a
        rebalance.
        """
        engine, now = self._engine, self._clock()
        engine.auto_commit.begin_leaving(deadline, commits=autocommit)
        try:
            if engine.subscription.is_subscribed or engine.is_in_group:
                left = max(0.1, deadline - now)
                await self._call_with_callbacks(
                    lambda: engine.leave(cause, left, leave_group=leave_group),
                    self.run_all,
                    left,
                )
            else:
                await engine.auto_commit.commit(self._call_engine)
            engine.subscription.revoke(engine.subscription.assigned())
            await self.run_all()
            await self._end_sessions(min(END_SESSIONS_SECONDS, deadline - self._clock()))
        finally:
            engine.auto_commit.end_leaving()
        return self.take_listener_error()

    async def _end_sessions(self, seconds: float) -> None:
        """End the fetch sessions, so that brokers free their memory. Log a failure."""
        if seconds <= 0:
            return
        try:
            await self._call_engine(lambda: self._engine.fetcher.end_sessions(seconds), seconds)
        except WakeupError:
            self._engine.callback_queue.request_wakeup()
        except KafkaError as error:
            logger.info("ending the fetch sessions failed: %s", error_text(error))

    def abandon(self) -> None:
        """Drop the queued callbacks, because the engine has ended."""
        self._engine.callback_queue.pending.clear()
