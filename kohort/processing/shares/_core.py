"""The core of process() for share consumers: which record is handled when, and how it ends.

It is the core of consumers without offsets. Each acquired record is a separate lane, and the
end of a lane is an acknowledgement.

Invariants:

1. A record is *held* from the poll that returned it until one final acknowledgement, or until its
   lock is lost. What a handler returns after that has no effect.
2. A record that no handler has begun is released after half of its lock, unless the group could
   then archive it unseen. All others that are held are renewed once for each lock.
3. A record whose lock is lost is handled by the member that gets it next. Only a record that the
   group may have archived in its last delivery is handled, or retried, without its lock.
4. Held records and running handlers together take the free slots. Records are polled ahead of the
   slots only as far as handlers have ended lately, so those records soon begin, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kohort import ShareRecord, TopicPartition
from kohort.processing._commands import Acknowledge, Overdue, Released, StopRequest
from kohort.processing._core import _ALONE, Core, CoreOptions
from kohort.processing._partition import Lane, Partition

AWAKE = -1
"""Value of ``Lane.wake`` for a lane that is not to wake up."""
RENEW_SHARE = 0.5
"""Share of the lock after which it is renewed."""
LOOK_SHARE = 0.1
"""Share of the lock between two looks at the locks."""
AHEAD = 4
"""Most records for each slot that are acquired before a slot is free."""
AHEAD_SECONDS = 0.5
"""As many handlers as ended in these seconds will end in the next ones, by estimate."""
LEAST_LIMIT = 2
"""The least number of deliveries that a group can have."""


class ShareCore(Core):
    """The state of one process() of a share consumer."""

    def __init__(
        self,
        options: CoreOptions,
        max_runtime: float,
        slots: int,
        has_lost: Callable[[Any], bool],
    ) -> None:
        """``has_lost`` gets a record. It returns True if its lock has ended before its deadline."""
        super().__init__(options)
        self._slots = slots
        self._has_lost = has_lost
        self._ended: deque[float] = deque(maxlen=AHEAD * slots)
        """When handlers that took little time ended, as of the tick after it."""
        self._began: list[float] = []
        """When handlers began that ended since the latest tick."""
        self.delivery_limit: int | None = None
        """Number of deliveries of a record in this group, or None if it is unknown."""
        self.lock_seconds: float = 30.0
        self.may_renew: bool = True
        self._max_runtime = max_runtime
        self._held: dict[Lane, float | None] = {}
        """Lanes whose records are held, with the deadline for which they were renewed."""

    def occupied(self) -> int:
        """Return how many slots are taken, by held records or by handlers that have not ended."""
        return len(self._held) + self.given_up()

    def room(self) -> int:
        """Return how many more records may be acquired now.

        While records are ready, little room waits until it is worth a fetch.
        """
        ended, before = self._ended, self.now - AHEAD_SECONDS
        while ended and ended[0] < before:
            ended.popleft()
        room = self._slots + len(ended) - self.occupied()
        return 0 if self.ready and 2 * room < len(ended) else room

    def given_up(self) -> int:
        """Return how many handlers go on after the end of their record."""
        return sum(lane not in self._held for lane in self.running)

    def running_of(self, tps: Iterable[TopicPartition] | None = None) -> list[Lane]:
        """Return the lanes whose handlers have not ended, and whose results count."""
        return [lane for lane in super().running_of(tps) if lane in self._held]

    def is_drained(self, tps: Iterable[TopicPartition] | None = None) -> bool:
        """Return True if no record runs or sleeps, and none that :meth:`stop` kept can begin."""
        can_begin = bool(self.ready) and self.given_up() < self._slots
        sleeps = any(
            lane.wake == number and lane in self._held for _, number, lane in self._sleeping
        )
        return super().is_drained(tps) and not can_begin and not sleeps

    def effect_of_stuck(self, lane: Lane) -> str:
        """Return what follows from a record that is in flight for long."""
        if lane in self._held:
            return "Its lock is renewed until max_runtime"
        return "Its record has ended after max_runtime, and the handler keeps its slot"

    def is_held(self, tp: TopicPartition, offset: int) -> bool:
        """Return True if a record has no final acknowledgement."""
        return any(lane.partition.tp == tp and lane.load.offset == offset for lane in self._held)

    def records(self, tp: TopicPartition, records: Sequence[Any], now: float) -> None:
        """Take the records that a poll returned for a partition."""
        self.now = now
        partition = self.partitions.get(tp)
        if partition is None:
            partition = self.partitions[tp] = Partition(tp, None)
        for record in records:
            lane = Lane(partition, _ALONE, record)
            self._held[lane] = None
            if self.is_stopping and not self._may_be_last(record):
                self._finish(lane, Acknowledge(record, "release"))
            else:
                self.ready.append(lane)

    def stop(self) -> None:
        """Start no more handlers, retry nothing, and release what no handler has.

        A record that the group could then archive is still handled in the drain, at once. Its
        failure is final, so ``failed`` gets it. It is called again as long as the drain lasts.
        """
        kept = []
        if not self.is_stopping:
            waiting = (lane for lane in self._held if lane not in self.running)
            kept = [lane for lane in waiting if self._may_be_last(lane.load)]
        self.is_stopping = True
        self.options = replace(self.options, retries=())
        for lane in kept:
            lane.wake = AWAKE
        self.ready = deque(kept)
        stays = self.running.union(kept)
        self._release(lane for lane in list(self._held) if lane not in stays)

    def release_all(self) -> None:
        """Release all that is held, at the end."""
        self._release(list(self._held))

    def _release(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            lane.wake = AWAKE
            self._finish(lane, Acknowledge(lane.load, "release"))

    def _finish(self, lane: Lane, command: Acknowledge) -> None:
        """End a lane, unless it has ended."""
        if self._held.pop(lane, command) is not command:
            self._command(command)

    # -- handlers -----------------------------------------------------------------------------

    def take(self) -> Lane | None:
        """Return a lane whose record is to be handled now, or None."""
        while self.ready and self._comes_again(lane := self.ready[0]):
            self._forget(lane)
        return super().take()

    def _has_ended(self, lane: Lane) -> bool:
        """Return True if the lock of a record has ended."""
        return self.now >= lane.load.lock_deadline or self._has_lost(lane.load)

    def _comes_again(self, lane: Lane) -> bool:
        """Return True if the group delivers a record again, whatever becomes of it here."""
        return self._has_ended(lane) and not self._may_be_last(lane.load)

    def _forget(self, lane: Lane) -> None:
        """Drop a lane that does not run, and whose lock has ended."""
        self._drop(lane)
        self._held.pop(lane, None)
        self.has_news = True  # there is room for another record

    # -- ends of handlers ---------------------------------------------------------------------

    def done(self, lane: Lane) -> Lane | None:
        """Note that the handler or the policy has returned. Return the lane to go on with."""
        return self._end_with(lane, Acknowledge(lane.load, "reject" if lane.error else "accept"))

    def _end_with(self, lane: Lane, command: Acknowledge) -> Lane | None:
        self.running.discard(lane)
        self.has_news = True
        if lane.started is not None:
            self._began.append(lane.started)
        self._finish(lane, command)
        return self.take()

    def failed(self, lane: Lane, error: Exception, now: float) -> Lane | None:
        """Note that the handler, or the policy, raised. Return the lane to go on with, or None."""
        if lane not in self._held:
            self.now = now
            return self._leave_open(lane)
        return super().failed(lane, error, now)

    def _after_last_attempt(
        self, lane: Lane, error: Exception, now: float, *, gave_up: bool
    ) -> Lane | None:
        if not gave_up and not self._is_last(lane.load):
            self._command(Released(lane.load, error, lane.attempt))
            return self._end_with(lane, Acknowledge(lane.load, "release"))
        if self.options.failed == "skip":
            self._finish(lane, Acknowledge(lane.load, "reject"))
        return super()._after_last_attempt(lane, error, now, gave_up=gave_up)

    def _is_last(self, record: ShareRecord[Any, Any]) -> bool:
        return self.delivery_limit is not None and record.delivery_count >= self.delivery_limit

    def _may_be_last(self, record: ShareRecord[Any, Any]) -> bool:
        """Return True if the group may archive a record after this delivery."""
        return bool(record.delivery_count >= (self.delivery_limit or LEAST_LIMIT))

    # -- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`tick` has something to do; None if there is none."""
        woken = super().next_deadline()
        if not self._held:
            return woken
        look = self.now + self.lock_seconds * LOOK_SHARE
        return look if woken is None else min(woken, look)

    def tick(self, now: float, wall: float) -> None:
        """Make lanes ready that have slept until now, renew locks, and end what takes too long."""
        ready = len(self.ready)
        super().tick(now, wall)
        # A drain that has no slot left for this lane ends now, and no handler would notify it.
        self.has_news |= self.is_stopping and len(self.ready) > ready
        self._ended.extend(now for began in self._began if now - began < AHEAD_SECONDS)
        self._began.clear()
        for lane, renewed in list(self._held.items()):
            deadline = lane.load.lock_deadline
            if lane.error is None and now - (lane.started or now) >= self._max_runtime:
                self._end_overdue(lane, now)
            elif self._has_ended(lane):
                if lane not in self.running and self._comes_again(lane):
                    self._forget(lane)
            elif deadline - now > self.lock_seconds * (1 - RENEW_SHARE):
                continue
            elif lane.started is None and lane.error is None and not self._is_last(lane.load):
                self._drop(lane)
                self._finish(lane, Acknowledge(lane.load, "release"))
            elif self.may_renew and renewed != deadline:
                self._held[lane] = deadline
                self._command(Acknowledge(lane.load, "renew"))

    def _drop(self, lane: Lane) -> None:
        """Let a lane that does not run be neither ready nor woken."""
        lane.wake = AWAKE
        if lane in self.ready:
            self.ready.remove(lane)

    def _end_overdue(self, lane: Lane, now: float) -> None:
        """End a record whose handler has not returned. Its last delivery has failed for good."""
        record, seconds = lane.load, now - (lane.started or now)
        error = TimeoutError(f"the handler has not returned within {self._max_runtime:g} s")
        self._drop(lane)
        if not self._is_last(record):
            self._finish(lane, Acknowledge(record, "release"))
        elif self.options.failed == "call":
            del self._held[lane]
            heir = Lane(lane.partition, _ALONE, record)
            heir.error, heir.failures, heir.attempt = error, 0, lane.attempt - 1
            heir.started = now
            self._held[heir] = None
            self.ready.append(heir)
        else:
            self._finish(lane, Acknowledge(record, "reject"))
            if self.options.failed == "stop":
                self._command(StopRequest(error, record, lane.attempt))
        self._command(Overdue(lane, seconds))
