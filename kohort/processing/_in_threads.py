"""The driver of process() for KafkaConsumer: handlers are functions in daemon threads.

The calling thread polls, commits, runs the listener and carries out the commands of the core. At
most ``concurrency`` threads are slots. They start as they are needed, and stay. All of them share
the core under one lock, so a slot takes its next lane without the calling thread.

``_ready`` wakes slots that wait for lanes. ``_ended`` wakes the calling thread while it drains, and
functions of each_partition that wait for records. Both belong to the lock. A slot that waits keeps
the time, too: it ticks when a lane has slept enough. If all slots are busy, none could use the
lane, and the first free one ticks.

A signal handler interrupts the calling thread, which may hold the lock. So it only counts, and
calls wakeup(). A drain looks at the count every ``LOOK_SECONDS``.

A thread cannot be cancelled. After the drain its slot is marked as cancelled and its result is
ignored. The thread goes on to the next lane when the handler returns.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from kohort import (
    KafkaConsumer,
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
from kohort.processing._letter_writers import ThreadLetters
from kohort.processing._options import ProcessOptions
from kohort.processing._partition import Lane
from kohort.processing._processor import (
    COMMIT_SECONDS,
    RETRY_SECONDS,
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
from kohort.processing._streams import PartitionRecords
from kohort.processing.stores import run_steps

LOOK_SECONDS = 0.1
"""Seconds after which the calling thread looks for stops and commands while it waits."""

Handler = Callable[[Any], object]


class ThreadProcessor(Processor[KafkaConsumer[Any, Any]]):
    """One call of process() with a KafkaConsumer."""

    def __init__(
        self,
        consumer: KafkaConsumer[Any, Any],
        handler: Callable[..., Any],
        options: ProcessOptions,
    ) -> None:
        super().__init__(consumer, options)
        kind = options.kind
        self._handler = checked_handler(handler, kind)
        self._letters: ThreadLetters | None = None
        self._policy: Callable[..., object] | None = None
        policy = options.policy
        if isinstance(policy, DeadLetters):
            send = None if policy.send is None else checked_handler(policy.send, kind)
            self._policy = self._letters = ThreadLetters(consumer, policy, send)
        elif policy is not None:
            self._policy = checked_handler(policy, kind)
        if (stored := self._open_store(self._handler, time.sleep, is_async=False)) is not None:
            self._handler = lambda load: run_steps(stored.handle(load))
            if self._policy is not None:
                self._policy = _and_advance(self._policy, stored)
        elif self._poll_rows is not None:
            self._handler = _with_table(self._handler)
        if self._letters is not None:
            self._handler = failing_for_unreadable(self._handler)
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._threads = 0
        self._waiting = 0
        """Number of slots that wait for lanes."""
        self._is_stopping = False
        self._is_over = False
        self._commit: tuple[Future[None], dict[TopicPartition, OffsetAndMetadata]] | None = None
        """The commit in flight, with its offsets."""

    def run(self) -> None:
        """Process until a stop."""
        consumer = self._consumer
        give_back = self._take_over()
        try:
            with stop_signals(self._on_signal, enabled=self._options.handle_signals):
                try:
                    self._process()
                finally:
                    consumer.close()
        finally:
            with self._lock:
                self._is_over = True
                self._ready.notify_all()
            give_back(self._last_facts(sys.exception()))
            if self._stored is not None:
                run_steps(self._stored.close())
        if self._error is not None:
            raise self._error

    def _process(self) -> None:
        self._tick(time.monotonic())
        try:
            self.assigned(self._consumer.assignment() - self._core.partitions.keys())
            if self._letters is not None:
                self._letters.start_check()
            self._poll_until(lambda: self._is_stopping)
            with self._lock:
                self._note_positions()
                self._core.stop()
                self._apply()
                self._start_slots()
                deadline = time.monotonic() + self._drain_limit()
                self._note_deadline(None, deadline)
            self._poll_until(lambda: self._has_drained(deadline))
        finally:
            with self._lock:
                self._core.stop()
                self._core.ready.clear()  # slots go on, and must begin nothing that is released
                self._stops = 2  # nothing is waited for after this
                self._slots_of(self._core.running_of())
            self._commit_within(None, COMMIT_SECONDS)

    def _has_drained(self, deadline: float) -> bool:
        if self._stops > 1 or time.monotonic() >= deadline:
            return True
        with self._lock:
            return self._core.is_drained()

    # -- stops --------------------------------------------------------------------------------

    def _on_signal(self) -> None:
        self._count_signal()
        self._is_stopping = True
        self._consumer.wakeup()

    def _request_stop(self) -> None:
        self._is_stopping = True

    def _notify(self) -> None:
        self._ended.notify_all()

    # -- the calling thread -------------------------------------------------------------------

    def _poll_until(self, is_over: Callable[[], bool]) -> None:
        """Poll, feed the core and commit at intervals."""
        core = self._core
        commit_at = time.monotonic() + self._options.commit_interval
        while not is_over():
            error: KafkaError | None = None
            polled: Mapping[TopicPartition, Sequence[Any]] = {}
            try:
                polled = self._poll()
            except WakeupError:
                self._note_wakeup()
            except KafkaError as raised:
                passed = self._passed_data(raised)
                error, polled = (raised, {}) if passed is None else (None, passed)
            error = error or self._check_letters()
            now = time.monotonic()
            with self._lock:
                try:
                    for tp, records in polled.items():
                        core.records(tp, records, now)
                except ConfigurationError as wrong:
                    self._fail(wrong)
                self._tick(now)
                if error is not None:
                    self._note_error(error)
                if core.has_news:
                    self._apply()
                self._start_slots()
            if now >= commit_at:
                commit_at = now + self._options.commit_interval
                self._start_commit()
            if error is not None:
                time.sleep(RETRY_SECONDS)

    def _poll(self) -> Mapping[TopicPartition, Sequence[Any]]:
        """Poll for a short time, so that stops and commands are seen."""
        polled: Mapping[TopicPartition, Sequence[Any]]
        if self._poll_rows is None:
            polled = self._consumer.poll(timeout_ms=1000 * LOOK_SECONDS)
        else:
            columns = self._consumer.poll_batches(1000 * LOOK_SECONDS, self._poll_rows)
            polled = chunks_of(columns)
        if self._stored is not None:
            self._stored.check(self._consumer, polled)
        return polled

    def _check_letters(self) -> KafkaError | None:
        """Return the error of the topic of dead letters, once."""
        try:
            if self._letters is not None:
                self._letters.end_check()
        except KafkaError as error:
            return error
        return None

    def _note_error(self, error: KafkaError) -> None:
        if error.retriable:
            logger.warning("process() goes on after an error: %s", error_text(error))
        else:
            self._fail(error)
            if isinstance(error, ConsumerClosedError):
                self._stops = 2

    # -- slots --------------------------------------------------------------------------------

    def _start_slots(self) -> None:
        """Wake or start as many slots as there are ready lanes."""
        ready = len(self._core.ready)
        self._ready.notify(min(ready, self._waiting))
        for _ in range(min(ready - self._waiting, self._options.concurrency - self._threads)):
            self._threads += 1
            name = f"kohort-process-{self._threads}"
            threading.Thread(target=self._run_slot, name=name, daemon=True).start()

    def _run_slot(self) -> None:
        slot = self._new_slot()
        try:
            while True:
                with self._lock:
                    lane = slot.lane = self._next_lane()
                if lane is None:
                    return
                while lane is not None:
                    lane = self._handle(slot, lane)
                    if slot.is_cancelled:
                        self._slots.discard(slot)
                        slot = self._new_slot()
                        slot.lane = lane
        finally:
            self._slots.discard(slot)

    def _new_slot(self) -> Slot:
        slot = Slot()
        self._slots.add(slot)
        current_slot.set(slot)
        return slot

    def _next_lane(self) -> Lane | None:
        """Wait for a lane. Return None at the end."""
        core = self._core
        while not self._is_over:
            lane = core.take()
            if lane is not None:
                return lane
            deadline = core.next_deadline()
            now = time.monotonic()
            if deadline is not None and deadline <= now:
                core.tick(now, self._wall_clock())
                continue
            self._waiting += 1
            try:
                self._ready.wait(None if deadline is None else deadline - now)
            finally:
                self._waiting -= 1
        return None

    def _handle(self, slot: Slot, lane: Lane) -> Lane | None:
        """Call the handler, or the policy, for a lane. Return the lane to go on with."""
        core = self._core
        failure: BaseException | None = None
        try:
            if lane.error is None:
                self._handler(lane.load)
            else:
                assert self._policy is not None
                self._policy(record_of(lane.load), lane.error, lane.attempt)
        except BaseException as error:
            failure = error
        with self._lock:
            if slot.is_cancelled:  # its result is ignored, because the handler may have given up
                core.cancelled(lane)
                following = None
            elif failure is None:
                following = core.done(lane)
            elif isinstance(failure, Exception) and not isinstance(failure, ConfigurationError):
                following = core.failed(lane, failure, time.monotonic())
            else:
                self._fail(failure)
                core.cancelled(lane)
                following = None
            slot.lane = following
            if core.has_news:
                self._notify()
        return following

    # -- streams ------------------------------------------------------------------------------

    def _open(self, lane: Lane) -> None:
        tp = lane.partition.tp
        name = f"kohort-process-{tp.topic}-{tp.partition}"
        threading.Thread(target=self._run_stream, args=(lane,), name=name, daemon=True).start()

    def _run_stream(self, lane: Lane) -> None:
        """Call the function of each_partition with the records of a lane."""
        slot = self._new_slot()
        slot.lane = lane
        failure: BaseException | None = None
        try:
            self._handler(lane.partition.tp, PartitionRecords(lane, self._take_from, self._finish))
        except BaseException as error:
            failure = error
        with self._lock:
            self._slots.discard(slot)
            if failure is None or isinstance(failure, Exception):
                self._core.returned(lane, failure)
            else:
                self._fail(failure)
                self._core.running.discard(lane)
            self._notify()

    def _take_from(self, lane: Lane) -> Any:
        """Wait for the next record of a lane. Return None at the end of its records."""
        with self._lock:
            while not self._core.is_over(lane):
                if lane.queue:
                    return lane.queue.popleft()
                self._ended.wait(None)
        return None

    def _finish(self, lane: Lane, records: Iterable[Any]) -> None:
        with self._lock:
            self._core.finish(lane, records)

    # -- rebalances ---------------------------------------------------------------------------

    def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Note new partitions, with the done sets of their former owners."""
        tps = sorted(tps)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if self._stored is not None and tps:
            if not self._admit(self._stored, tps):
                return
            found = dict.fromkeys(tps)
        while tps and not found:
            try:
                found = self._consumer.committed(tps, metadata=True)
            except WakeupError:
                self._note_wakeup()
            except KafkaError as error:
                self._warn_of_done_sets(error)
                break
        with self._lock:
            for tp in tps:
                self._core.assigned(tp, found.get(tp))
            if self._core.has_news:
                self._apply()

    def _admit(self, stored: StoredOffsets, tps: list[TopicPartition]) -> bool:
        """Begin at the stored offsets of new partitions. Return False if process() stops."""
        attempt = 0
        while not self._is_stopping:
            attempt += 1
            try:
                run_steps(stored.admit(self._consumer, tps, run_steps))
                return True
            except WakeupError:
                self._note_wakeup()
            except Exception as error:
                pause = self._pause_of_admission(error, attempt)
                end = time.monotonic() + (pause or 0.0)
                while not self._is_stopping and (left := end - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_SECONDS))
        return False

    def revoked(self, tps: Iterable[TopicPartition], rebalance: RebalanceContext) -> None:
        """Drain and commit partitions that the group is about to take away."""
        core = self._core
        with self._lock:
            self._note_positions(tps)
            core.close(tps)
            self._notify()
            now = time.monotonic()
            limit = min(self._drain_limit(), _consumer.drain_seconds(rebalance, now))
            deadline = now + limit
            self._note_deadline(tps, deadline)
            while core.running_of(tps) and self._stops < 2:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._ended.wait(min(left, LOOK_SECONDS))
            self._slots_of(core.running_of(tps))
        self._commit_within(tps, _consumer.RESERVE_SECONDS)
        with self._lock:
            core.drop(tps)
            self._notify()

    def lost(self, tps: Iterable[TopicPartition]) -> None:
        """Cancel the handlers of partitions that others may own already."""
        with self._lock:
            self._slots_of(self._core.running_of(tps))
            self._core.drop(tps)
            self._notify()

    # -- commits ------------------------------------------------------------------------------

    def _start_commit(self) -> None:
        """Start a commit of what has changed, unless one is in flight."""
        if self._commit is not None and not self._commit[0].done():
            return
        self._end_commit(0)
        with self._lock:
            offsets = self._core.offsets(self._consumer.positions())
        if offsets:
            with suppress(ConsumerClosedError):
                self._commit = self._consumer.commit_async(offsets, _ignore), offsets

    def _end_commit(self, limit: float) -> None:
        """Wait for the commit in flight, and note its result."""
        if self._commit is None:
            return
        future, offsets = self._commit
        self._commit = None
        try:
            future.result(limit)
        except (KafkaError, TimeoutError) as error:
            self._note_refusal(error, offsets)
        else:
            with self._lock:
                self._core.committed(offsets)

    def _commit_within(self, tps: Iterable[TopicPartition] | None, limit: float) -> None:
        """Commit, and try again until it succeeds or ``limit`` seconds have passed."""
        deadline = time.monotonic() + limit
        self._end_commit(limit / 2)  # the later commit has to come last
        while (left := deadline - time.monotonic()) > 0:
            with self._lock:
                offsets = self._core.offsets(self._consumer.positions(), tps)
            if not offsets:
                return
            try:
                self._consumer.commit(offsets, timeout_ms=1000 * left)
            except WakeupError:
                self._note_wakeup()
            except ConsumerClosedError:
                return
            except KafkaError as error:
                if not self._note_refusal(error, offsets):
                    time.sleep(RETRY_SECONDS)
            else:
                with self._lock:
                    self._core.committed(offsets)
                return

    def _note_refusal(
        self, error: Exception, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> bool:
        """Note that a commit failed. Return True if it may be tried again at once."""
        if isinstance(error, TOO_LARGE):
            with self._lock:
                self._leave_out_done_sets(error, offsets)
            return True
        self._log_commit(error)
        return False


def _ignore(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    """Do nothing, in place of ``default_offset_commit_callback``."""


def _with_table(handler: Handler) -> Handler:
    return lambda load: handler(argument_of(load))


def _and_advance(policy: Callable[..., Any], stored: StoredOffsets) -> Callable[..., Any]:
    """Return a policy that stores the end of the failed record."""

    def call(record: Any, error: Exception, attempts: int) -> None:
        if not stored.is_policy_done(record):
            policy(record, error, attempts)
        run_steps(stored.advance(record))

    return call


def checked_handler(handler: Callable[..., Any], kind: str) -> Callable[..., object]:
    """Return the handler. One that returns a coroutine raises ConfigurationError when called."""

    def wrong() -> ConfigurationError:
        return ConfigurationError(
            f"process() with {kind} needs plain functions, and {handler!r} is a coroutine "
            f"function. Use 'def', or use Async{kind}"
        )

    if inspect.iscoroutinefunction(handler):
        raise wrong()

    def call(*args: Any) -> object:
        result = handler(*args)
        if result is not None and inspect.iscoroutine(result):
            result.close()
            raise wrong()
        return result

    return call
