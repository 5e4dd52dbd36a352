"""The driver of process() for AsyncKafkaConsumer: handlers are coroutines in tasks.

One task polls, one keeps the time, one commits, and at most ``concurrency`` tasks are slots. A slot
calls one handler after the other while lanes are ready, and then waits for the next ready lane. It
starts or wakes another slot before it calls a handler, so as many run as are needed. Handlers that
never suspend need a single one.

The listener of process() drains, commits and drops what is revoked. It runs in a task of the
consumer, while the poll waits for it and slots go on.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from kohort import (
    AsyncKafkaConsumer,
    KafkaError,
    OffsetAndMetadata,
    TopicPartition,
)
from kohort.errors import ConfigurationError, ConsumerClosedError, WakeupError
from kohort.listeners import RebalanceContext
from kohort.logs import error_text
from kohort.processing import _consumer
from kohort.processing._context import Slot, current_slot
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._letter_writers import AsyncLetters
from kohort.processing._options import ProcessOptions
from kohort.processing._partition import Lane
from kohort.processing._processor import (
    COMMIT_SECONDS,
    RETRY_SECONDS,
    TICK_SECONDS,
    TOO_LARGE,
    Processor,
    argument_of,
    chunks_of,
    failing_for_unreadable,
    record_of,
    stop_signals,
)
from kohort.processing._reports import logger
from kohort.processing._stored import StoredOffsets
from kohort.processing._streams import AsyncPartitionRecords
from kohort.processing.stores import Steps, await_steps, run_steps

POLL_MS = 1000
GRACE_SECONDS = 1.0
"""Seconds in which a cancelled handler may clean up before its partition is given away."""
STEPS = 16
"""Number of records after which a slot looks whether other tasks should run."""
TURN_SECONDS = 0.01
"""Seconds after which a slot lets other tasks run."""

Handler = Callable[..., Awaitable[object]]
T = TypeVar("T")


class AsyncProcessor(Processor[AsyncKafkaConsumer[Any, Any]]):
    """One call of process() with an AsyncKafkaConsumer."""

    def __init__(
        self,
        consumer: AsyncKafkaConsumer[Any, Any],
        handler: Callable[..., Any],
        options: ProcessOptions,
    ) -> None:
        super().__init__(consumer, options)
        self._handler: Handler
        self._letters: AsyncLetters | None = None
        self._policy: Callable[..., Awaitable[object]] | None = None
        policy = options.policy
        if isinstance(policy, DeadLetters):
            send = None if policy.send is None else _awaited(policy.send)
            self._policy = self._letters = AsyncLetters(consumer, policy, send)
        elif policy is not None:
            self._policy = _awaited(policy)
        is_async = inspect.iscoroutinefunction(handler)
        pause = anyio.sleep if is_async else time.sleep
        if (stored := self._open_store(handler, pause, is_async=is_async)) is not None:
            self._handler = lambda load: self._in_store(stored.handle(load))
            if self._policy is not None:
                self._policy = self._and_advance(self._policy, stored)
        elif self._poll_rows is not None:
            self._handler = _with_table(checked_handler(handler, options.kind))
        else:
            self._handler = checked_handler(handler, options.kind)
        if self._letters is not None:
            self._handler = failing_for_unreadable(self._handler)
        self._group: anyio.abc.TaskGroup
        self._threads = anyio.CapacityLimiter(options.concurrency + 1)
        """The threads of handlers with a store, and one more for new partitions."""
        self._is_starting = False
        """True from the start of a slot, or the end of its wait, until it runs."""
        self._idle: list[anyio.Event] = []
        """For each slot that waits for a lane, the event that ends its wait."""
        self._news = anyio.Event()
        """Set when the core has news, and then replaced."""
        self._stop = anyio.Event()
        self._commit_scope: anyio.CancelScope | None = None
        """The scope of a commit at an interval, which a commit of revoked partitions ends."""

    async def run(self) -> None:
        """Process until a stop."""
        consumer = self._consumer
        give_back = self._take_over()
        try:
            with stop_signals(self._on_signal, enabled=self._options.handle_signals):
                async with AsyncExitStack() as stack:
                    await _consumer.enter(consumer, stack)
                    await self._process()
        finally:
            give_back(self._last_facts(sys.exception()))
            if self._stored is not None:
                with anyio.CancelScope(shield=True):
                    await self._in_store(self._stored.close())
        if self._error is not None:
            raise self._error

    async def _process(self) -> None:
        self._tick(anyio.current_time())
        if self._stops:  # a signal came before the consumer had an event loop
            self._stop.set()
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                await self.assigned(self._consumer.assignment() - self._core.partitions.keys())
                group.start_soon(self._poll)
                group.start_soon(self._keep_time)
                group.start_soon(self._commit_at_intervals)
                if self._letters is not None:
                    group.start_soon(self._check_letters, self._letters)
                await self._stop.wait()
                self._note_positions()
                self._core.stop()
                self._apply()
                self._start_slot()
                await self._drain(None, self._drain_limit())
                group.cancel_scope.cancel()
        finally:
            self._core.stop()
            self._stops = 2  # nothing is waited for after this
            with anyio.CancelScope(shield=True):
                await self._commit_within(None, COMMIT_SECONDS)

    # -- stops --------------------------------------------------------------------------------

    def _on_signal(self) -> None:
        self._stops += 1  # it raises no WakeupError, so the next one is the program's
        _consumer.call_soon(self._consumer, self._request_stop)

    def _request_stop(self) -> None:
        self._stop.set()
        self._notify()

    # -- tasks --------------------------------------------------------------------------------

    async def _poll(self) -> None:
        core, consumer, rows = self._core, self._consumer, self._poll_rows
        polled: Mapping[TopicPartition, Sequence[Any]]
        while True:
            try:
                if rows is None:
                    polled = await consumer.poll(timeout_ms=POLL_MS)
                else:
                    polled = chunks_of(await consumer.poll_batches(POLL_MS, rows))
                now = anyio.current_time()
                if self._stored is not None:
                    self._stored.check(consumer, polled)
                for tp, records in polled.items():
                    core.records(tp, records, now)
            except WakeupError:
                self._note_wakeup()
                continue
            except KafkaError as error:
                if (passed := self._passed_data(error)) is not None:
                    for tp, records in passed.items():
                        core.records(tp, records, anyio.current_time())
                elif not error.retriable:
                    self._fail(error)
                    if isinstance(error, ConsumerClosedError):
                        return
                else:
                    logger.warning("process() goes on after an error: %s", error_text(error))
                if passed is None:
                    await anyio.sleep(RETRY_SECONDS)
                    continue
            if core.has_news:
                self._apply()
            if core.ready:
                self._start_slot()

    async def _check_letters(self, letters: AsyncLetters) -> None:
        try:
            await letters.check()
        except KafkaError as error:
            self._fail(error)

    async def _keep_time(self) -> None:
        core = self._core
        while True:
            news, now = self._news, anyio.current_time()
            self._tick(now)
            self._start_slot()
            deadline = core.next_deadline()
            until = now + TICK_SECONDS if deadline is None else min(deadline, now + TICK_SECONDS)
            with anyio.move_on_after(max(0.0, until - now)):
                await news.wait()

    async def _commit_at_intervals(self) -> None:
        while True:
            await anyio.sleep(self._options.commit_interval)
            with anyio.CancelScope() as self._commit_scope:
                await self._commit(None, COMMIT_SECONDS)
            self._commit_scope = None

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # -- slots --------------------------------------------------------------------------------

    def _start_slot(self) -> None:
        """Wake or start a slot if a lane is ready and a slot is free."""
        if not self._core.ready or self._is_starting:
            return
        if self._idle:
            self._is_starting = True
            self._idle.pop().set()
        elif len(self._slots) < self._options.concurrency:
            self._is_starting = True
            self._group.start_soon(self._run_slot, Slot())

    async def _run_slot(self, slot: Slot) -> None:
        """Handle one lane after the other, until a handler or its task is cancelled."""
        self._is_starting = False
        self._slots.add(slot)
        current_slot.set(slot)
        try:
            with anyio.CancelScope() as slot.scope:
                await self._handle(slot)
                while not slot.is_cancelled and await self._wait_for_lane():
                    await self._handle(slot)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                raise
            self._fail(error)  # Ctrl-C, or a defect
        finally:
            self._slots.discard(slot)
            if slot.lane is not None:
                self._core.cancelled(slot.lane)
                self._apply()
            self._start_slot()

    async def _wait_for_lane(self) -> bool:
        """Wait until a lane is ready for the slot of this task. Return False if it is to end."""
        event = anyio.Event()
        self._idle.append(event)
        try:
            await event.wait()
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() == -math.inf:
                raise
            return False  # a handler cancelled its own task and returned
        finally:
            if event.is_set():
                self._is_starting = False
            else:
                self._idle.remove(event)
        return True

    async def _handle(self, slot: Slot) -> None:
        """Handle one lane after the other until none is ready, or until the slot is cancelled."""
        core, handler = self._core, self._handler
        done, steps, cancelling = core.done, 0, _counter_of_cancellations()
        yield_at = anyio.current_time() + TURN_SECONDS
        lane = slot.lane = core.take()
        while lane is not None:
            if core.ready and not self._is_starting:
                self._start_slot()
            steps += 1
            if not steps % STEPS and anyio.current_time() >= yield_at:
                await _end_cancellation()
                yield_at = anyio.current_time() + TURN_SECONDS
            try:
                if lane.error is None:
                    await handler(lane.load)
                else:
                    assert self._policy is not None
                    await self._policy(record_of(lane.load), lane.error, lane.attempt)
            except Exception as error:
                lane = slot.lane = self._after_error(lane, error)
            except anyio.get_cancelled_exc_class() as error:
                if slot.is_cancelled or anyio.current_effective_deadline() == -math.inf:
                    raise
                # A task that the handler awaited was cancelled, or the handler cancelled its own.
                # Then asyncio counts a cancellation, which the next handler must not see.
                slot.is_cancelled = True
                lane = slot.lane = self._after_error(lane, _Cancelled.from_error(error))
            else:
                lane = slot.lane = done(lane)
            if cancelling() and not slot.is_cancelled:
                await _end_cancellation()
                slot.is_cancelled = True
            if slot.is_cancelled and lane is not None:
                slot.lane = None
                core.put_back(lane)
            if core.has_news:
                self._apply()
            if slot.is_cancelled:
                return

    def _after_error(self, lane: Lane, error: Exception) -> Lane | None:
        if isinstance(error, ConfigurationError):
            self._fail(error)
            self._core.cancelled(lane)
            return None
        return self._core.failed(lane, error, anyio.current_time())

    # -- streams ------------------------------------------------------------------------------

    def _open(self, lane: Lane) -> None:
        self._group.start_soon(self._run_stream, lane)

    async def _run_stream(self, lane: Lane) -> None:
        """Call the function of each_partition with the records of a lane."""
        core, tp = self._core, lane.partition.tp
        slot = Slot()
        slot.lane = lane
        self._slots.add(slot)
        current_slot.set(slot)
        error: Exception | None = None
        try:
            with anyio.CancelScope() as slot.scope:
                if slot.is_cancelled:
                    return
                records = AsyncPartitionRecords[Any, Any](
                    core, lane, self._wait_for_news, self._apply
                )
                await self._handler(tp, records)
                await _end_cancellation()
        except Exception as raised:
            error = raised
        except anyio.get_cancelled_exc_class() as raised:
            if slot.is_cancelled or anyio.current_effective_deadline() == -math.inf:
                raise
            error = _Cancelled.from_error(raised)
        except BaseException as raised:
            self._fail(raised)
        finally:
            self._slots.discard(slot)
            if slot.is_cancelled and error is None:
                core.running.discard(lane)
            else:
                core.returned(lane, error)
            self._apply()

    async def _wait_for_news(self) -> None:
        await self._news.wait()

    # -- rebalances ---------------------------------------------------------------------------

    async def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Note new partitions, with the done sets of their former owners."""
        tps = sorted(tps)
        if not tps:
            return
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if self._stored is not None:
            if not await self._admit(self._stored, tps):
                return
        else:
            try:
                found = await self._consumer.committed(tps, metadata=True)
            except KafkaError as error:
                self._warn_of_done_sets(error)
        for tp in tps:
            self._core.assigned(tp, found.get(tp))
        if self._core.has_news:
            self._apply()

    async def _admit(self, stored: StoredOffsets, tps: list[TopicPartition]) -> bool:
        """Begin at the stored offsets of new partitions. Return False if process() stops."""
        attempt = 0
        while not self._stop.is_set():
            attempt += 1
            try:
                await await_steps(stored.admit(self._consumer, tps, self._in_store))
                return True
            except WakeupError:
                self._note_wakeup()
            except Exception as error:
                pause = self._pause_of_admission(error, attempt)
                with anyio.move_on_after(pause or 0.0):
                    await self._stop.wait()
        return False

    async def _in_store(self, steps: Steps[T]) -> T:
        """Run steps of the store, in a thread unless its calls are asynchronous.

        A thread cannot be cancelled. It goes on, and the offset of the store is the fence.
        """
        if self._stored is not None and self._stored.is_async:
            return await await_steps(steps)
        return await anyio.to_thread.run_sync(
            run_steps, steps, abandon_on_cancel=True, limiter=self._threads
        )

    def _and_advance(self, policy: Handler, stored: StoredOffsets) -> Handler:
        """Return a policy that stores the end of the failed record."""

        async def call(record: Any, error: Exception, attempts: int) -> None:
            if not stored.is_policy_done(record):
                await policy(record, error, attempts)
            await self._in_store(stored.advance(record))

        return call

    async def revoked(self, tps: Iterable[TopicPartition], rebalance: RebalanceContext) -> None:
        """Drain and commit partitions that the group is about to take away."""
        self._note_positions(tps)
        self._core.close(tps)
        self._notify()
        limit = _consumer.drain_seconds(rebalance, anyio.current_time())
        await self._drain(tps, min(self._drain_limit(), limit))
        if self._commit_scope is not None:
            self._commit_scope.cancel()  # the later commit has to come last
        await self._commit_within(tps, _consumer.RESERVE_SECONDS)
        self._core.drop(tps)

    def lost(self, tps: Iterable[TopicPartition]) -> None:
        """Cancel the handlers of partitions that others may own already."""
        lanes = self._core.running_of(tps)
        self._core.drop(tps)
        self._cancel(lanes)
        self._notify()

    async def _drain(self, tps: Iterable[TopicPartition] | None, limit: float) -> None:
        """Wait until the handlers of partitions end. Cancel those that take longer."""
        core = self._core
        deadline = anyio.current_time() + limit
        self._note_deadline(tps, deadline)
        with anyio.move_on_at(deadline):
            while not core.is_drained(tps) and self._stops < 2:
                await self._news.wait()
        if tps is None:
            core.ready.clear()  # a cancelled slot must not begin another handler
        self._cancel(core.running_of(tps))
        with anyio.move_on_after(GRACE_SECONDS):
            while core.running_of(tps):
                await self._news.wait()

    def _cancel(self, lanes: list[Lane]) -> None:
        for slot in self._slots_of(lanes):
            slot.scope.cancel()

    # -- commits ------------------------------------------------------------------------------

    async def _commit_within(self, tps: Iterable[TopicPartition] | None, limit: float) -> None:
        """Commit, and try again until it succeeds or ``limit`` seconds have passed."""
        with anyio.move_on_after(limit):
            while not await self._commit(tps, limit):  # noqa: ASYNC110
                await anyio.sleep(RETRY_SECONDS)

    async def _commit(self, tps: Iterable[TopicPartition] | None, limit: float) -> bool:
        """Commit what has changed. Return False if it failed, and is to be tried again."""
        core = self._core
        while offsets := core.offsets(self._consumer.positions(), tps):
            try:
                await self._consumer.commit(offsets, timeout_ms=1000 * limit)
            except TOO_LARGE as error:
                self._leave_out_done_sets(error, offsets)
                if self._error is error:
                    return True
            except ConsumerClosedError:
                return True
            except KafkaError as error:
                self._log_commit(error)
                return False
            else:
                core.committed(offsets)
                return True
        return True


def _counter_of_cancellations() -> Callable[[], int]:
    """Return a function that counts the cancellations of this task. trio has none of a task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio runs this task
        task = None
    return int if task is None else task.cancelling


async def _end_cancellation() -> None:
    """Let other tasks run, and take a cancellation of this task by a handler.

    The handler has cancelled its own task and returned or raised.

    asyncio raises it at the next await, which must not be that of the next handler.
    """
    try:
        await checkpoint()
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise


class _Cancelled(Exception):
    """The failure of a handler that awaited a cancelled task."""

    @classmethod
    def from_error(cls, error: BaseException) -> _Cancelled:
        made = cls("the handler raised a cancellation that was not its own")
        made.__cause__ = error
        return made


def _awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[object]]:
    """Return a coroutine function that calls ``function`` and awaits its result if needed."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*args: Any) -> object:
        result = function(*args)
        return await result if inspect.isawaitable(result) else result

    return call


def _with_table(handler: Handler) -> Handler:
    async def call(load: Any) -> object:
        return await handler(argument_of(load))

    return call


def checked_handler(handler: Any, kind: str) -> Handler:
    """Return the handler. One that returns no awaitable raises ConfigurationError when called."""
    if inspect.iscoroutinefunction(handler):
        checked: Handler = handler
        return checked

    async def call(*args: Any) -> object:
        result = handler(*args)
        if not inspect.isawaitable(result):
            raise ConfigurationError(
                f"process() with Async{kind} needs a coroutine function, and {handler!r} returned "
                f"no awaitable. Use 'async def', or use {kind}"
            )
        return await result

    return call
