"""What both drivers of process() have: the core, its commands, the stop, and the listener."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

from kohort import (
    AsyncKafkaConsumer,
    KafkaConsumer,
    KafkaError,
    OffsetAndMetadata,
    ProcessingFacts,
    RecordColumns,
    TopicPartition,
)
from kohort.errors import InvalidCommitOffsetSizeError, OffsetMetadataTooLargeError
from kohort.logs import error_text
from kohort.processing import _consumer
from kohort.processing._batches import Chunk, Unreadable, table_of
from kohort.processing._commands import Opened, Pause, Resume, StopRequest
from kohort.processing._context import Slot
from kohort.processing._core import Core
from kohort.processing._dead_letters import DeadLetters, unreadable
from kohort.processing._options import ProcessOptions
from kohort.processing._partition import Lane
from kohort.processing._policies import GiveUp, pause_after
from kohort.processing._reports import StuckWatch, described, logger, place, report
from kohort.processing._stored import StoredOffsets
from kohort.processing.stores import open_session

C = TypeVar("C", AsyncKafkaConsumer[Any, Any], KafkaConsumer[Any, Any])

TOO_LARGE = (OffsetMetadataTooLargeError, InvalidCommitOffsetSizeError)
"""Errors of brokers that accept less metadata than usual."""
TICK_SECONDS = 1.0
"""Longest time between two ticks of the core."""
COMMIT_SECONDS = 5.0
"""Longest time of one commit."""
RETRY_SECONDS = 0.1
"""Seconds between two attempts after a transient error."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop process() while it runs in the main thread."""


class Processor(Generic[C]):
    """The part of a driver that is the same for tasks and threads."""

    _letters: Any
    """Writers of dead letters, or None."""
    assigned: Callable[..., Any]
    revoked: Callable[..., Any]
    lost: Callable[..., Any]

    def __init__(self, consumer: C, options: ProcessOptions) -> None:
        batch = options.batch
        self._consumer: C = consumer
        self._options = options
        self._poll_rows: int | None = None
        """Most rows of a poll of columns; None to poll records."""
        if batch is not None and batch.columns:
            self._poll_rows = max(batch.rows, options.window // 2)
        self._core = self._make_core()
        self._pauses = _consumer.Pauses(consumer)
        letters = options.policy if isinstance(options.policy, DeadLetters) else None
        self._stuck = StuckWatch(self._core, options.stuck_after, letters)
        self._wall_clock = _consumer.wall_clock(consumer)
        self._slots: set[Slot] = set()
        self._stops = 0
        """Number of requests to stop at once or after a drain: signals, and calls of wakeup()."""
        self._signals = 0
        """Number of signals whose WakeupError has not been raised yet."""
        self._error: BaseException | None = None
        self._has_warned_of_metadata = False
        self._stored: StoredOffsets | None = None
        """Stored offsets that decide where partitions begin, in place of those of the group."""

    def _make_core(self) -> Core:
        return Core(self._options.core(_consumer.buffer_memory(self._consumer)))

    def _take_over(self) -> Callable[[ProcessingFacts], None]:
        """Take the consumer over. Return the function that gives it back."""
        return _consumer.take_over(
            self._consumer,
            assigned=self.assigned,
            revoked=self.revoked,
            lost=self.lost,
            facts=self.facts,
            keeps_bytes=self._letters is not None,
        )

    def _note_positions(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Let the core know how far the consumer has read."""
        self._core.offsets(self._consumer.positions(), tps)

    def _notify(self) -> None:
        """Wake what waits for the core."""
        raise NotImplementedError  # each driver has it

    def _request_stop(self) -> None:
        """Begin the stop, if it has not begun."""
        raise NotImplementedError  # each driver has it

    def _open(self, lane: Lane) -> None:
        """Call the function of each_partition for a new partition."""
        raise NotImplementedError  # each driver has it

    def _tick(self, now: float) -> None:
        self._core.tick(now, self._wall_clock())
        self._stuck.check(now)

    def facts(self) -> ProcessingFacts:
        """Return the facts for explain() and health(). Any thread may call it."""
        return {
            "stopping": self._stops > 0 or self._core.is_stopping,
            "failure": None,
            "stuck": list(self._stuck.stuck),
            "waiting": list(self._stuck.waiting),
            "letters": list(self._stuck.letters),
        }

    def _last_facts(self, error: BaseException | None) -> ProcessingFacts:
        """Return the facts after the end, which ``error`` has caused, unless it is none."""
        error = self._error or error
        failure = described(error) if isinstance(error, Exception) else None
        return {"stopping": True, "failure": failure, "stuck": [], "waiting": [], "letters": []}

    def _count_signal(self) -> None:
        self._stops += 1
        self._signals += 1

    def _note_wakeup(self) -> None:
        """Note a WakeupError, which a signal or the program has caused."""
        if self._signals:
            self._signals -= 1
        else:
            self._stops += 1
        self._request_stop()

    def _fail(self, error: BaseException) -> None:
        """Stop, and raise this error at the end, unless there is an earlier one."""
        if self._error is None:
            self._error = error
        elif error is not self._error:
            logger.error("%s. process() raises an earlier error", described(error))
        if not isinstance(error, Exception):
            self._stops = 2
        self._request_stop()

    def _apply(self) -> None:
        """Carry out the commands of the core."""
        core = self._core
        core.has_news = False
        while core.commands:
            command = core.commands.popleft()
            if isinstance(command, Pause):
                self._pauses.pause(command.tp)
            elif isinstance(command, Resume):
                self._pauses.resume(command.tp)
            elif isinstance(command, StopRequest):
                if command.error is None:
                    self._request_stop()
                else:
                    if command.load is not None:
                        command.error.add_note(
                            f"process() stopped at {place(command.load)} after attempt "
                            f"{command.attempts}. The record is not committed"
                        )
                    self._fail(command.error)
            elif isinstance(command, Opened):
                self._open(command.lane)
            else:
                self._carry_out(command)
        self._notify()

    def _carry_out(self, command: Any) -> None:
        report(command)

    def _drain_limit(self) -> float:
        """Return the seconds for which running handlers may go on."""
        return 0.0 if self._stops > 1 else self._options.drain

    def _note_deadline(self, tps: Iterable[TopicPartition] | None, deadline: float) -> None:
        """Note for the handlers of these partitions how long they may go on."""
        for lane in self._core.running_of(tps):
            lane.partition.deadline = deadline

    def _slots_of(self, lanes: list[Lane]) -> list[Slot]:
        """Mark the slots of these lanes as cancelled. Return those that were not before."""
        chosen = set(lanes)
        found = [slot for slot in self._slots if slot.lane in chosen and not slot.is_cancelled]
        for slot in found:
            slot.is_cancelled = True
        return found

    def _passed_data(self, error: KafkaError) -> dict[TopicPartition, list[Any]] | None:
        """Pass data that a poll could not return, and return it in place of its records.

        Its dead letter is written in the order of its lane, so nothing is written twice when the
        partition goes to another member. Return None for other errors.
        """
        data = unreadable(error) if isinstance(self._options.policy, DeadLetters) else None
        if data is None:
            return None
        tp = TopicPartition(data.topic, data.partition)
        partition = self._core.partitions.get(tp)
        if partition is None or partition.is_closed:
            self._pauses.pause(tp)
            return {}
        if tp in self._consumer.assignment():
            self._consumer.seek(tp, data.end)
        return {tp: [data]}

    def _open_store(
        self, handler: Callable[..., Any], pause: Callable[[float], Any], *, is_async: bool
    ) -> StoredOffsets | None:
        """Open the store of the option ``offsets``."""
        if (store := self._options.offsets) is None:
            return None
        session = open_session(store, _consumer.group_id(self._consumer), is_async=is_async)
        self._stored = StoredOffsets(session, handler, pause, is_async=is_async)
        return self._stored

    def _pause_of_admission(self, error: Exception, attempt: int) -> float | None:
        """Return the seconds until new partitions are admitted again; None if process() stops."""
        pause: float | None = TICK_SECONDS
        if not isinstance(error, KafkaError):
            pause = pause_after(self._options.retries, error, attempt)
        elif not error.retriable:
            pause = None
        if pause is None:
            self._fail(error)
        else:
            logger.warning(
                "process() cannot begin with new partitions: %s. The next attempt follows in "
                "%.1f s",
                described(error),
                pause,
            )
        return pause

    def _warn_of_done_sets(self, error: KafkaError) -> None:
        logger.warning(
            "the done sets of new partitions cannot be read: %s. Records that their former owner "
            "finished after the committed offset are handled again",
            error_text(error),
        )

    def _log_commit(self, error: Exception) -> None:
        logger.info("commit failed: %s. The next commit has its offsets, too", error_text(error))

    def _leave_out_done_sets(
        self, error: KafkaError, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """React to a broker that accepts less metadata. Fail if the commit had none."""
        if not self._core.refuse_done_sets(offsets):
            self._fail(error)
        elif not self._has_warned_of_metadata:
            self._has_warned_of_metadata = True
            logger.warning(
                "the broker refused the done set of a commit: %s. Commits go on without large "
                "done sets, so a new owner handles more records again. Raise the option "
                "offset.metadata.max.bytes of the brokers to 4096",
                error_text(error),
            )


def failing_for_unreadable(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a handler of loads that fails for data that cannot be read."""

    def call(load: Any) -> Any:
        data = load[0] if isinstance(load, list) else load
        if isinstance(data, Unreadable):
            raise GiveUp from data.error
        return handler(load)

    return call


def chunks_of(polled: Iterable[RecordColumns]) -> dict[TopicPartition, list[Any]]:
    """Return the rows of a poll of columns by partition."""
    found: dict[TopicPartition, list[Any]] = {}
    for columns in polled:
        tp = TopicPartition(columns.topic, columns.partition)
        found.setdefault(tp, []).append(Chunk(columns, 0, len(columns)))
    return found


def argument_of(load: Any) -> Any:
    """Return what a handler gets: a table for chunks."""
    return table_of(load) if isinstance(load, list) and isinstance(load[0], Chunk) else load


def record_of(load: Any) -> Any:
    """Return the one record of a load, for the ``failed`` policy."""
    piece = load[0] if isinstance(load, list) else load
    return piece.record() if isinstance(piece, Chunk) else piece


@contextmanager
def stop_signals(on_signal: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Call ``on_signal`` for each signal in the block, and restore the former handlers after it.

    In other threads the signals are left alone. A handler that Python did not install is, too,
    because it could not be restored.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        on_signal()

    former = {}
    try:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not None:
                former[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
