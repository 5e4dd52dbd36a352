"""The core of process(): which record is handled when, and what is committed.

Theory of operation. The core does no I/O, reads no clock and logs nothing. Its driver reports
events by calling methods, with the time where it matters. It carries out the ``commands`` that the
methods leave. A poll brings ``records()``. They become *lanes* by partition and key, and lanes
whose turn it is wait in ``ready``. A driver has slots, at most ``concurrency``. A slot calls
``take()`` for a lane, calls the handler with ``lane.load``, and reports ``done()`` or ``failed()``,
which return the lane to go on with. So a lane that runs on costs no task. A
failed record sleeps in a heap of times until ``tick()`` makes its lane ready again, and its slot
takes another lane meanwhile.

A partition that is revoked is ``close()``d: what runs may end, nothing is started. Then the driver
commits ``offsets()`` and calls ``drop()``. A lost partition is dropped at once. A stop closes all.

Invariants:

1. A record is in flight from the poll that returned it until its handler, or the ``failed`` policy,
   has returned. The committed offset never exceeds the lowest offset in flight of its partition.
2. A lane runs in one slot at most, and records of a lane start in the order of their offsets. A
   lane has one partition and one key. It exists while it has records.
3. A lane outlives its partition while its handler runs. If the partition is assigned again
   meanwhile, records of the key queue behind that handler.
4. Results of a dropped partition change no offsets.
5. At most ``window`` offsets of a partition lie between the lowest one in flight and the last one
   taken. Further records wait, the partition is paused, and resumed at half. A partition is also
   paused while its records in flight have more than its share of ``max_bytes``, by estimate.
6. Offsets that no poll returned (holes of compaction, markers, aborted records) count as finished.
   So the done set is all that was taken and is not in flight.
7. The done set of a commit is skipped by the next owner only if its position is not below the
   committed offset. A reset writes no done set, so it replays everything.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kohort import OffsetAndMetadata, TopicPartition
from kohort.errors import ConfigurationError, IllegalStateError
from kohort.processing._batches import cut, end_of, rows_of, split_at
from kohort.processing._commands import (
    Command,
    Opened,
    Pause,
    PolicyFailed,
    Resume,
    Retried,
    Skipped,
    StopRequest,
)
from kohort.processing._done_set import MAX_LENGTH
from kohort.processing._partition import Lane, Partition
from kohort.processing._policies import Batch, GiveUp, Retry, Skip, Stop, pause_after

Order: TypeAlias = Literal["partition", "key", "none"]

_WHOLE = object()
"""Key of the one lane of a partition."""
_ALONE = object()
"""Key of a lane for one record."""
CHECKS_OF_WINDOW = 16
"""Number of times that a full window is checked while all of its records finish."""
POLICY_RETRY = Retry(None, first=1.0, factor=2.0, longest=60.0)
"""The pauses between calls of a ``failed`` policy that raises."""


WINDOW = 10_000
"""Offsets of a partition that may be in flight by default, without batches."""


@dataclass(frozen=True)
class CoreOptions:
    """The options of process() that decide what the core does."""

    order: Order = "partition"
    window: int = WINDOW
    retries: tuple[Retry, ...] = ()
    failed: Literal["stop", "skip", "call"] = "stop"
    """What to do with a failed record; "call" hands it to the policy."""
    delay: float = 0.0
    max_bytes: int = 0
    """Bytes of records in flight, all partitions together, that pause a partition; 0 for any."""
    batch: Batch | None = None
    is_stream: bool = False
    """True if a program takes the records of each partition itself."""


class Core:
    """The state of one process(). See the top of the module."""

    def __init__(self, options: CoreOptions) -> None:
        self.options: CoreOptions = options
        self.partitions: dict[TopicPartition, Partition] = {}
        self.ready: deque[Lane] = deque()
        """Lanes whose load may be handled now."""
        self.running: set[Lane] = set()
        """Lanes with a slot."""
        self.commands: deque[Command] = deque()
        self.is_stopping: bool = False
        self.has_news: bool = False
        """True if there are commands, if :meth:`next_deadline` may have become earlier, or if a
        handler of a closed partition has ended. The driver clears it."""
        self.now: float = 0.0
        """Time of the latest tick."""
        self._orphans: dict[tuple[TopicPartition, Any], Lane] = {}
        """Running lanes of dropped partitions, by partition and key."""
        self._sleeping: list[tuple[float, int, Lane]] = []
        self._sleeps = 0
        self._wall_offset = 0.0
        """The time since the epoch minus the driver's time."""
        self._uses_done_sets = options.order != "partition"
        self._longest_done_set = MAX_LENGTH
        self._check_every = max(1, options.window // CHECKS_OF_WINDOW)
        self._is_watched = options.delay > 0 or options.batch is not None
        """True if the end of each handler needs more than the usual steps."""
        self._hashable: set[type] = {bytes, str, int, float, bool}

    def _command(self, command: Command) -> None:
        self.commands.append(command)
        self.has_news = True

    # -- partitions ---------------------------------------------------------------------------

    def assigned(self, tp: TopicPartition, committed: OffsetAndMetadata | None = None) -> None:
        """Note a new partition. ``committed`` has the done set of its former owner."""
        self.partitions[tp] = partition = Partition(tp, committed)
        partition.is_watched = self._is_watched
        if self.is_stopping:
            self._close(partition)
            self._command(Pause(tp))
        for (of, key), lane in self._orphans.items():
            if of == tp:
                partition.lanes[key] = lane
        if self.options.is_stream and not self.is_stopping:
            partition.lanes[_WHOLE] = lane = Lane(partition, _WHOLE, None)
            lane.queue = deque()
            self.running.add(lane)
            self._command(Opened(lane))

    def close(self, tps: Iterable[TopicPartition]) -> None:
        """Start no more handlers for these partitions."""
        for tp in tps:
            if (partition := self.partitions.get(tp)) is not None:
                self._close(partition)
        self.ready = deque(lane for lane in self.ready if not lane.partition.is_closed)

    def _close(self, partition: Partition) -> None:
        partition.is_closed = partition.is_watched = True
        partition.waiting.clear()
        for lane in partition.lanes.values():
            lane.queue = None

    def running_of(self, tps: Iterable[TopicPartition] | None = None) -> list[Lane]:
        """Return the lanes of these partitions, or of all, whose handlers have not ended."""
        partitions = self.partitions.values() if tps is None else self._known(tps)
        chosen = set(map(id, partitions))
        return [lane for lane in self.running if id(lane.partition) in chosen]

    def is_drained(self, tps: Iterable[TopicPartition] | None = None) -> bool:
        """Return True if nothing of these partitions, or of all, has to end before a stop."""
        return not self.running_of(tps)

    def _known(self, tps: Iterable[TopicPartition]) -> list[Partition]:
        return [self.partitions[tp] for tp in tps if tp in self.partitions]

    def effect_of_stuck(self, lane: Lane) -> str:
        """Return what follows from a record that is in flight for long."""
        return "The commit of the partition waits for it"

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget these partitions: others own them. Results of running handlers are ignored."""
        self.close(tps)
        for partition in self._known(tps):
            del self.partitions[partition.tp]
            partition.is_dropped = True
            for lane in self.running:
                if lane.partition is partition and lane.key is not _ALONE:
                    self._orphans[partition.tp, lane.key] = lane

    def stop(self) -> None:
        """Start no more handlers."""
        self.is_stopping = True
        self.close(self.partitions)
        for tp in self.partitions:
            self._command(Pause(tp))

    # -- records ------------------------------------------------------------------------------

    def records(self, tp: TopicPartition, records: Sequence[Any], now: float) -> None:
        """Take the records that a poll returned for a partition."""
        partition = self.partitions.get(tp)
        if partition is None or partition.is_closed:
            return
        self.now = now
        first = records[0].offset
        if partition.polled is not None and first < partition.polled:
            partition = self._begin_again(partition)
        if partition.seen is None:
            partition.begin(first)
        partition.polled = end_of(records[-1])
        if self.options.max_bytes:
            partition.note_sizes(records)
        if partition.waiting:
            partition.waiting.extend(records)
        else:
            self._take(partition, records)
        if (
            partition.waiting
            or partition.taken() >= self.options.window
            or self._share_of_bytes(partition) >= 1
        ):
            partition.is_full = partition.is_watched = True
            self._command(Pause(tp))

    def _share_of_bytes(self, partition: Partition) -> float:
        """Return the bytes in flight of a partition, where 1 stands for all it may have."""
        limit = self.options.max_bytes
        return partition.bytes_in_flight() * len(self.partitions) / limit if limit else 0.0

    def _begin_again(self, partition: Partition) -> Partition:
        """Replace a partition whose position went back, by a seek, a reset or a new topic."""
        tp = partition.tp
        if partition.is_full:
            self._command(Resume(tp))
        self.drop([tp])
        self.assigned(tp)
        return self.partitions[tp]

    def _take(self, partition: Partition, records: Sequence[Any]) -> None:
        """Take records up to the end of the window into flight. Let the others wait."""
        rest = records
        while rest:
            lowest = partition.lowest()
            base = rest[0].offset if not partition.open or lowest is None else lowest
            records, rest = rest, ()
            if end_of(records[-1]) > base + self.options.window:
                records, rest = split_at(records, base + self.options.window)
            if not records:
                break
            self._line_up(partition, partition.take(list(records)))
        partition.waiting.extend(rest)

    def _line_up(self, partition: Partition, records: list[Any]) -> None:
        """Append records to their lanes."""
        lanes, ready, order = partition.lanes, self.ready, self.options.order
        if self.options.batch is not None:
            self._gather(partition, records)
            return
        if order == "none":
            for record in records:
                self._make_ready(Lane(partition, _ALONE, record))
            return
        if order == "partition":
            if self.options.is_stream:
                queue = lanes[_WHOLE].queue
                if queue is not None:
                    queue.extend(records)
                self.has_news = True
            elif records:
                lane = lanes.get(_WHOLE)
                if lane is None:
                    lanes[_WHOLE] = lane = Lane(partition, _WHOLE, records[0])
                    self._make_ready(lane)
                    records = records[1:]
                if lane.queue is None:
                    lane.queue = deque(records)
                else:
                    lane.queue.extend(records)
            return
        delayed = self.options.delay > 0
        for record in records:
            key = record.key
            if key is None:
                self._make_ready(Lane(partition, _ALONE, record))
                continue
            if type(key) not in self._hashable:
                self._check_key(key)
            lane = lanes.get(key)
            if lane is None:
                lanes[key] = lane = Lane(partition, key, record)
                if delayed:
                    self._make_ready(lane)
                else:
                    ready.append(lane)
            elif lane.queue is None:
                lane.queue = deque((record,))
            else:
                lane.queue.append(record)

    def _make_ready(self, lane: Lane) -> None:
        """Let a lane be taken, or let it sleep first if its record is to be held."""
        if self.options.delay and lane.load.timestamp >= 0:
            due = lane.load.timestamp / 1000 + self.options.delay - self._wall_offset
            if due > self.now:
                self._wake_at(lane, due)
                return
        self.ready.append(lane)

    def _check_key(self, key: Any) -> None:
        """Raise ConfigurationError for keys by which records have no order."""
        kind: Any = type(key)
        if kind.__hash__ is None or kind.__eq__ is object.__eq__:
            raise ConfigurationError(
                f'process(order="key") cannot compare keys of the type {kind.__name__}. Let '
                "key_deserializer return values that are hashable and equal for equal bytes, such "
                "as bytes, str or a tuple"
            )
        try:
            hash(key)
        except TypeError as error:
            raise ConfigurationError(
                f'process(order="key") cannot compare the key {key!r}: {error}. Let '
                "key_deserializer return hashable values"
            ) from error

    # -- handlers -----------------------------------------------------------------------------

    def take(self) -> Lane | None:
        """Return a lane whose load is to be handled now, or None."""
        if not self.ready:
            return None
        lane = self.ready.popleft()
        self.running.add(lane)
        lane.attempt += 1
        if lane.started is None:
            lane.started = self.now
        else:
            lane.called_again = self.now
        return lane

    def done(self, lane: Lane) -> Lane | None:
        """Note that a load is finished. Return the lane to go on with, or None."""
        partition = lane.partition
        if partition.is_watched:
            return self._done_watched(lane)
        partition.open.discard(lane.load.offset)
        ready, queue = self.ready, lane.queue
        if queue:
            lane.load = queue.popleft()
            lane.error = None
            lane.started = self.now
            if not ready:
                lane.attempt = 1
                return lane
            lane.attempt = 0
            ready.append(lane)
        elif lane.key is not _ALONE:
            del partition.lanes[lane.key]
        running = self.running
        running.discard(lane)
        if not ready:
            return None
        lane = ready.popleft()  # take(), without its call
        running.add(lane)
        lane.attempt += 1
        if lane.started is None:
            lane.started = self.now
        else:
            lane.called_again = self.now
        return lane

    def _done_watched(self, lane: Lane) -> Lane | None:
        """Do the same for a partition that is full, closed or dropped."""
        partition = lane.partition
        self.has_news |= partition.is_closed
        self.running.discard(lane)
        if not partition.is_dropped:
            partition.finish(lane.load)
        records = 1 if self.options.batch is None else rows_of(lane.load)
        self._next_of(lane)
        if partition.is_full and not partition.is_closed:
            partition.since_check += records
            if partition.since_check >= self._check_every or not partition.open:
                self._check_window(partition)
        return self.take()

    def _next_of(self, lane: Lane) -> None:
        """Make the next load of a lane ready, or end the lane."""
        partition = lane.partition
        if partition.is_dropped and lane.key is not _ALONE:
            self._orphans.pop((partition.tp, lane.key), None)
            heir = self.partitions.get(partition.tp)
            if heir is None or heir.lanes.get(lane.key) is not lane:
                return
            lane.partition = partition = heir
        if self.options.batch is not None:
            self._next_batch(lane)
        elif lane.queue:
            lane.load = lane.queue.popleft()
            lane.attempt, lane.error, lane.started = 0, None, None
            self._make_ready(lane)
        elif lane.key is not _ALONE:
            partition.lanes.pop(lane.key, None)

    def _check_window(self, partition: Partition) -> None:
        """Take records that wait, or resume the partition when half of its window is free."""
        partition.since_check = 0
        if partition.waiting:
            waiting = list(partition.waiting)
            partition.waiting.clear()
            self._take(partition, waiting)
        if (
            not partition.waiting
            and partition.taken() <= self.options.window // 2
            and self._share_of_bytes(partition) <= 0.5
        ):
            partition.is_full = False
            partition.is_watched = partition.is_closed or self._is_watched
            self._command(Resume(partition.tp))

    def failed(self, lane: Lane, error: Exception, now: float) -> Lane | None:
        """Note that the handler, or the policy, raised. Return the lane to go on with, or None.

        This may be the same lane, whose ``error`` is then to be handed to the policy.
        """
        self.now = now
        if lane.partition.is_dropped:
            return self._done_watched(lane)
        if lane.error is not None:
            return self._policy_failed(lane, error, now)
        if isinstance(error, Skip):
            return self.done(lane)
        if isinstance(error, Stop):
            self._command(StopRequest(None, lane.load, lane.attempt))
            return self._leave_open(lane)
        pause = None
        gave_up = isinstance(error, GiveUp)
        if isinstance(error, GiveUp):
            cause = error.__cause__
            error = cause if isinstance(cause, Exception) else error
        elif not self._is_part(lane):
            pause = pause_after(self.options.retries, error, lane.attempt)
        if pause is not None:
            self._command(Retried(lane.load, error, lane.attempt, pause))
            return self._put_to_sleep(lane, now + pause)
        if self._is_divisible(lane):
            if lane.partition.is_closed:  # no part may go to the policy for the error of another
                return self._leave_open(lane)
            self._split(lane, error)
            return self.take()
        return self._after_last_attempt(lane, error, now, gave_up=gave_up)

    def _after_last_attempt(
        self, lane: Lane, error: Exception, now: float, *, gave_up: bool
    ) -> Lane | None:
        """Do what the option ``failed`` says. Return the lane to go on with, or None."""
        if self.options.failed == "skip":
            self._command(Skipped(lane.load, error, lane.attempt))
            return self.done(lane)
        if self.options.failed == "call":
            lane.error, lane.failures, lane.called_again = error, 0, now
            return lane
        self._command(StopRequest(error, lane.load, lane.attempt))
        return self._leave_open(lane)

    def _policy_failed(self, lane: Lane, error: Exception, now: float) -> Lane | None:
        lane.failures += 1
        lane.failure = error
        pause = POLICY_RETRY.pause(lane.failures) or 0.0
        self._command(PolicyFailed(lane.load, error, pause))
        lane.attempt -= 1  # the next take() is no call of the handler
        return self._put_to_sleep(lane, now + pause)

    def cancelled(self, lane: Lane) -> None:
        """Note that the handler was cancelled before it ended. Its record stays in flight."""
        self.running.discard(lane)
        self.has_news = True
        self._end(lane)

    def put_back(self, lane: Lane) -> None:
        """Note that a lane was taken and its handler not called."""
        self.running.discard(lane)
        lane.attempt -= 1
        if not lane.attempt and lane.error is None:
            lane.started = None  # it has not begun
        if lane.partition.is_watched and (lane.partition.is_closed or lane.partition.is_dropped):
            self.has_news = True
            self._end(lane)
        else:
            self.ready.appendleft(lane)

    def _leave_open(self, lane: Lane) -> Lane | None:
        """End a lane whose record stays in flight, because process() stops."""
        self.running.discard(lane)
        self.has_news = True
        self._end(lane)
        return self.take()

    def _end(self, lane: Lane) -> None:
        """End a lane whose load stays in flight. Later records must not overtake it."""
        if lane.partition.is_dropped:
            self._next_of(lane)  # records of an heir may wait behind it
            return
        if not lane.partition.is_closed:  # records of polls before the stop would begin a new lane
            self.close([lane.partition.tp])
        if lane.key is not _ALONE:
            lane.partition.lanes.pop(lane.key, None)

    # -- streams ------------------------------------------------------------------------------

    def is_over(self, lane: Lane) -> bool:
        """Return True if a function gets no more records of its lane."""
        return lane.partition.is_closed

    def finish(self, lane: Lane, records: Iterable[Any]) -> None:
        """Note that a function is done with these records of its lane."""
        partition = lane.partition
        if partition.is_dropped:
            return
        partition.open.difference_update([record.offset for record in records])
        if partition.is_full and not partition.is_closed:
            self._check_window(partition)

    def returned(self, lane: Lane, error: Exception | None) -> None:
        """Note that a function has returned, which it may do only after the end of its records."""
        self.running.discard(lane)
        self.has_news = True
        partition = lane.partition
        if partition.is_dropped or (partition.is_closed and error is None):
            return
        if error is None:
            error = IllegalStateError(
                f"the function of each_partition returned, and {partition.tp.topic}-"
                f"{partition.tp.partition} is still assigned. Iterate until the records end"
            )
        stop = isinstance(error, Stop)
        self._command(StopRequest(None if stop else error, None, 1))

    # -- batches ------------------------------------------------------------------------------

    def _gather(self, partition: Partition, records: list[Any]) -> None:
        """Append records to the one lane of a partition, and make a complete batch ready."""
        if not records:
            return
        partition.arrivals.append((records[-1].offset, self.now))
        lane = partition.lanes.get(_WHOLE)
        if lane is None:
            partition.lanes[_WHOLE] = lane = Lane(partition, _WHOLE, None)
            lane.wake = 0
        if lane.queue is None:
            lane.queue = deque(records)
        else:
            lane.queue.extend(records)
        if lane.load is None:
            self._schedule(lane)

    def _schedule(self, lane: Lane) -> None:
        """Make the next batch ready if it is complete, or at the end of its time."""
        batch, arrivals = self.options.batch, lane.partition.arrivals
        if batch is None or not lane.queue:
            return
        if rows_of(lane.queue) >= batch.rows:
            self._cut(lane)
        elif not lane.wake:
            while len(arrivals) > 1 and arrivals[0][0] < lane.queue[0].offset:
                arrivals.popleft()
            self._wake_at(lane, arrivals[0][1] + batch.seconds)

    def _cut(self, lane: Lane) -> None:
        """Make the records that wait a batch, which is ready."""
        batch = self.options.batch
        lane.wake = 0
        if batch is not None and lane.queue:
            lane.load = cut(lane.queue, batch.rows)
            if lane.queue:
                lane.partition.note_split([lane.queue[0].offset])
            self.ready.append(lane)

    def _next_batch(self, lane: Lane) -> None:
        """Go on with the next part of a failed batch, or with the next batch."""
        partition = lane.partition
        lane.load, lane.attempt, lane.error, lane.failures = None, 0, None, 0
        lane.started = None
        if partition.is_closed:
            return
        if partition.pieces:
            lane.load, lane.error, lane.attempt = partition.pieces.pop()
            self.ready.append(lane)
            return
        partition.is_splitting = False
        if lane.queue:
            self._schedule(lane)
        else:
            del partition.lanes[_WHOLE]

    def _is_part(self, lane: Lane) -> bool:
        """Return True for a part of a failed batch with several records, which is not retried."""
        batch = self.options.batch
        if batch is None or not batch.split or rows_of(lane.load) == 1:
            return False
        return lane.partition.is_splitting

    def _is_divisible(self, lane: Lane) -> bool:
        """Return True if a failed batch does not stay whole."""
        batch = self.options.batch
        if batch is None or rows_of(lane.load) < 2:
            return False
        return batch.split or self.options.failed == "call"

    def _split(self, lane: Lane, error: Exception) -> None:
        """Replace a failed batch by its halves, or by its records for the policy."""
        batch, partition = self.options.batch, lane.partition
        rest: deque[Any] = deque(lane.load)
        parts: list[tuple[list[Any], Exception | None, int]] = []
        if batch is not None and batch.split:
            parts = [(cut(rest, rows_of(lane.load) // 2), None, 0), (list(rest), None, 0)]
        else:
            while rest:
                parts.append((cut(rest, 1), error, lane.attempt - 1))
        partition.note_split(part[0][0].offset for part in parts)
        partition.pieces.extend(reversed(parts))
        partition.is_splitting = True
        self.running.discard(lane)
        self._next_batch(lane)

    # -- time ---------------------------------------------------------------------------------

    def _put_to_sleep(self, lane: Lane, until: float) -> Lane | None:
        self.running.discard(lane)
        self.has_news = True
        if lane.partition.is_closed:
            self._end(lane)
        else:
            self._wake_at(lane, until)
        return self.take()

    def _wake_at(self, lane: Lane, until: float) -> None:
        self._sleeps += 1
        lane.wake = self._sleeps
        heapq.heappush(self._sleeping, (until, self._sleeps, lane))
        self.has_news |= self._sleeping[0][2] is lane

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`tick` has something to do; None if there is none."""
        return self._sleeping[0][0] if self._sleeping else None

    def tick(self, now: float, wall: float) -> None:
        """Make lanes ready that have slept until now. ``wall`` is the time since the epoch."""
        self.now, self._wall_offset = now, wall - now
        while self._sleeping and self._sleeping[0][0] <= now:
            _, number, lane = heapq.heappop(self._sleeping)
            if lane.wake != number:
                continue  # its batch was complete before
            lane.wake = 0
            if lane.partition.is_closed or lane.partition.is_dropped:
                continue
            if lane.load is None:
                self._cut(lane)
            else:
                self.ready.append(lane)

    def stuck(self, before: float) -> Iterator[Lane]:
        """Yield the lanes whose load is in flight since ``before``.

        Those of dropped partitions are among them while their handlers run.
        """
        sleeping = (entry[2] for entry in self._sleeping)
        for lane in (*self.running, *self.ready, *sleeping):
            if lane.started is None or lane.started > before or lane.load is None:
                continue
            if lane in self.running or not lane.partition.is_dropped:
                yield lane

    # -- commits ------------------------------------------------------------------------------

    def offsets(
        self,
        positions: Mapping[TopicPartition, int],
        tps: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to commit for these partitions, or for all, as far as it changed."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in self.partitions.values() if tps is None else self._known(tps):
            if (position := positions.get(partition.tp)) is not None:
                partition.move_to(position)
            wanted = partition.to_commit(
                with_done=self._uses_done_sets, longest=self._longest_done_set
            )
            if wanted is not None:
                found[partition.tp] = wanted
        return found

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the group has accepted a commit."""
        for tp, at in offsets.items():
            if (partition := self.partitions.get(tp)) is not None:
                partition.note_committed(at)

    def refuse_done_sets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Note that the metadata was too large. Return False if there was none to leave out."""
        shortest = min((len(at.metadata) for at in offsets.values() if at.metadata), default=0)
        if not shortest:
            return False
        self._longest_done_set = min(self._longest_done_set, shortest - 1)
        return True
