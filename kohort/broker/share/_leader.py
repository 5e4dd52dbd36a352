"""The share-partitions that a broker leads: loaded, fetched, acknowledged, timed and dropped.

Theory of operation
-------------------

``ShareLeader`` drives the machines of :mod:`_partition`. Requests call it with the time, and
``run()`` calls ``expire()`` when ``next_deadline()`` has passed. The share coordinator, logs and
settings are functions of a :class:`ShareEnvironment`.

The first request for a share-partition loads its state. The leader forgets it with all locks when
another broker leads, and when a write is fenced. It does the same when the group's last session
here ends by a disconnect. So it also forgets the delivery counts of what was out, as in Kafka.

A fetch that finds nothing waits outside. ``watch()`` registers it for the events that may give it
records: an expired lock, and a start that has moved. As in Kafka, released records wake no fetch,
unless ``release_wakes`` is set.
Logs notify of new records themselves.

Invariants
----------

1. Every change of a machine was written before, by the share coordinator of its partition.
2. A machine belongs to one leader epoch of its partition, and is not used in another.
3. A closed or disconnected session leaves no lock of its member in the partitions of the session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.lowlevel

from kohort.broker.groups._timers import Timers
from kohort.broker.log import PartitionLog
from kohort.broker.share._coordinator import NO_OFFSET, ShareState
from kohort.broker.share._in_flight import Unit
from kohort.broker.share._partition import (
    EXHAUSTED,
    REJECTED,
    AcquireLimit,
    Change,
    SharePartition,
    check_acks,
)
from kohort.broker.share._sessions import ShareSession, ShareSessions
from kohort.broker.share._values import (
    Ack,
    AckError,
    AckType,
    Acquired,
    Letter,
    ReadBatch,
    RecordState,
    ShareKey,
    ShareSettings,
    StateBatch,
)
from kohort.errors import ErrorCode
from kohort.types import NamedTuple

RETRY_SECONDS = 1.0
"""Pause until the next try to write the end of a lock."""
NOT_HERE = "This server does not host this topic-partition."
"""Kafka's message for acknowledgements at a broker without the share-partition."""


class LedLog(NamedTuple):
    """Log of a partition that this broker leads. ``end`` is the offset after the readable ones.

    ``is_committed``: records of aborted transactions are not delivered.
    """

    log: PartitionLog
    leader_epoch: int
    end: int
    is_committed: bool = False


class ShareEnvironment(Protocol):
    """What share-partitions need of their cluster."""

    def settings(self, group_id: str) -> ShareSettings:
        """Return the present settings of a group."""
        ...

    def led_log(self, key: ShareKey) -> LedLog | ErrorCode:
        """Return the log of a partition that this broker leads, else an error."""
        ...

    def first_offset(self, key: ShareKey, log: LedLog) -> int:
        """Return where a group without a start begins."""
        ...

    def read_state(self, key: ShareKey, leader_epoch: int) -> ShareState | ErrorCode:
        """Read the state at the share coordinator."""
        ...

    def write_state(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete: int,
        batches: Sequence[StateBatch],
    ) -> ErrorCode:
        """Write changes at the share coordinator."""
        ...

    def write_letters(self, key: ShareKey, letters: Sequence[Letter]) -> None:
        """Write dead letters, as far as the group's topic for them takes any."""
        ...

    def changed(self) -> None:
        """Notify observers that locks have expired."""
        ...


@dataclass(eq=False, slots=True)
class _Led:
    """A loaded share-partition, with the epochs of its writes."""

    machine: SharePartition
    state_epoch: int
    leader_epoch: int
    log: PartitionLog


@dataclass(slots=True)
class Fetched:
    """What a fetch got of a partition: record batches, and the offsets that it has acquired."""

    error: ErrorCode = ErrorCode.NONE
    acquired: list[Acquired] = field(default_factory=list)
    records: list[memoryview] = field(default_factory=list)
    is_read: bool = False
    """True if there was room to acquire records, also if there were none."""
    is_moved: bool = False
    """True if the log has deleted the records to read, so that the fetch ends."""


class ShareLeader:
    """The share-partitions and share sessions of one broker, see the module."""

    def __init__(
        self, env: ShareEnvironment, max_sessions: int = 2_000, *, release_wakes: bool = False
    ) -> None:
        self.sessions: ShareSessions = ShareSessions(max_sessions)
        self.partitions: dict[ShareKey, _Led] = {}
        self._env = env
        self._release_wakes = release_wakes
        self._timers: Timers[ShareKey] = Timers()
        self._watchers: dict[ShareKey, set[Callable[[], None]]] = {}
        self._letters: list[tuple[ShareKey, _Led, Unit, str]] = []
        self._waiting_until = -math.inf
        self._rescheduled = anyio.Event()

    # Loading

    def machines(self, group_id: str) -> dict[ShareKey, SharePartition]:
        """Return the share-partitions of a group that this broker has loaded and leads."""
        keys = [key for key in self.partitions if key.group_id == group_id]
        return {key: led.machine for key in keys if (led := self._current(key)) is not None}

    def load(self, key: ShareKey) -> ErrorCode:
        """Load a share-partition unless it is loaded for the present leader epoch."""
        source = self._env.led_log(key)
        if isinstance(source, ErrorCode):
            self.drop(key)
            return source
        led = self.partitions.get(key)
        if led is not None and self._is_current(led, source):
            return ErrorCode.NONE
        self.drop(key)
        state = self._env.read_state(key, source.leader_epoch)
        if isinstance(state, ErrorCode):
            return state
        start = state.start
        if start == NO_OFFSET:
            start = self._env.first_offset(key, source)
        machine = SharePartition(start, state.batches)
        led = _Led(machine, state.state_epoch, source.leader_epoch, source.log)
        self.partitions[key] = led
        limit = self._env.settings(key.group_id).delivery_limit
        for unit in machine.archiving():
            message = REJECTED if unit.delivery.count < limit else EXHAUSTED
            self._letters.append((key, led, unit, message))
        self._write_letters()
        return ErrorCode.NONE

    @staticmethod
    def _is_current(led: _Led, source: LedLog) -> bool:
        return led.leader_epoch == source.leader_epoch and led.log is source.log

    def drop(self, key: ShareKey) -> None:
        """Forget a share-partition with its locks."""
        if self.partitions.pop(key, None) is not None:
            self._timers.cancel(key)

    def drop_group(self, group_id: str) -> None:
        """Forget all share-partitions of a group."""
        for key in [key for key in self.partitions if key.group_id == group_id]:
            self.drop(key)

    def _current(self, key: ShareKey) -> _Led | None:
        """Return a share-partition that is loaded and that this broker still leads."""
        led = self.partitions.get(key)
        if led is None:
            return None
        source = self._env.led_log(key)
        if isinstance(source, ErrorCode) or not self._is_current(led, source):
            self.drop(key)
            return None
        return led

    # Fetching

    def readable_bytes(self, key: ShareKey, limit: int) -> int:
        """Return the bytes that a fetch could read of a partition, at most ``limit``."""
        led = self._current(key)
        source = self._env.led_log(key)
        if led is None or isinstance(source, ErrorCode):
            return 0
        machine = led.machine
        offset = machine.next_fetch_offset()
        if offset < source.log.start_offset:
            return limit
        if not machine.has_room(self._env.settings(key.group_id).max_locks):
            return 0
        return source.log.bytes_before(source.end, offset, limit) if offset < source.end else 0

    def fetch(
        self, key: ShareKey, member: str, limit: AcquireLimit, max_bytes: int, now: float
    ) -> Fetched:
        """Acquire records of a partition that is loaded; nothing if it is no longer led."""
        led = self._current(key)
        source = self._env.led_log(key)
        if led is None or isinstance(source, ErrorCode):
            return Fetched()
        settings, machine = self._env.settings(key.group_id), led.machine
        offset = machine.next_fetch_offset()
        if offset < source.log.start_offset:
            machine.on_log_start(source.log.start_offset)
            return Fetched(is_moved=True)
        if not machine.has_room(settings.max_locks):
            return Fetched()
        if offset >= source.end:
            return Fetched(is_read=True)
        read, raws = _read(source, offset, max_bytes)
        acquired = machine.acquire(member, read, limit, settings, now)
        self._schedule(key, led)
        if not acquired:
            return Fetched(is_read=True)
        first, last = acquired[0].first, acquired[-1].last
        records = [
            raw
            for batch, raw in zip(read, raws, strict=True)
            if batch.last >= first and batch.first <= last
        ]
        return Fetched(acquired=acquired, records=records, is_read=True)

    # Acknowledgements

    def acknowledge(
        self, key: ShareKey, member: str, acks: Sequence[Ack], now: float, *, renews: bool
    ) -> None:
        """Apply a member's acknowledgements of a partition; AckError if none of them holds.

        ``renews``: the request may have renewals.
        """
        check_acks(acks)
        if not renews and any(AckType.RENEW in ack.types for ack in acks):
            raise AckError(ErrorCode.INVALID_REQUEST)
        led = self._current(key)
        if led is None:
            raise AckError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE)
        settings = self._env.settings(key.group_id)
        try:
            change = led.machine.acknowledge(member, acks, settings, now)
        finally:
            self._schedule(key, led)
        error = self._commit(key, led, change)
        self._write_letters()
        if error is not ErrorCode.NONE:
            raise AckError(error)

    def close_session(self, session: ShareSession) -> None:
        """Release the member's locks in the partitions of a session that has ended."""
        for key in session.partitions:
            self._release(key, session.key.member_id)
        session.partitions.clear()
        self._write_letters()

    def disconnect(self, connection: Hashable) -> None:
        """End the session of a connection; a group without sessions here is forgotten."""
        session = self.sessions.close_connection(connection)
        if session is not None:
            self.close_session(session)
            if not self.sessions.has_group(session.key.group_id):
                self.drop_group(session.key.group_id)

    def _release(self, key: ShareKey, member: str) -> None:
        led = self._current(key)
        if led is not None:
            change = led.machine.release(member, self._env.settings(key.group_id))
            self._commit(key, led, change)

    def _commit(self, key: ShareKey, led: _Led, change: Change) -> ErrorCode:
        """Write a change and apply it; a fenced write forgets the share-partition."""
        if not change.moves:
            return ErrorCode.NONE
        machine = led.machine
        if change.batches:
            error = self._env.write_state(
                key,
                led.state_epoch,
                led.leader_epoch,
                machine.start,
                change.complete,
                change.batches,
            )
            if error is not ErrorCode.NONE:
                if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
                    self.drop(key)
                return error
        before = machine.start
        machine.apply(change)
        self._schedule(key, led)
        is_free = any(state is RecordState.AVAILABLE for _, state in change.moves)
        if machine.start != before or (is_free and self._release_wakes):
            self.wake(key)
        self._letters += [(key, led, unit, message) for unit, message in change.letters]
        return ErrorCode.NONE

    def _write_letters(self) -> None:
        """Write the letters that are due, and archive their records, also if no topic takes them.

        A record goes through ARCHIVING, so that a new leader resumes here.
        """
        letters, self._letters = self._letters, []
        for key, led, unit, message in letters:
            if self.partitions.get(key) is not led:
                continue
            offsets = range(unit.first, unit.last + 1)
            self._env.write_letters(
                key, [Letter(offset, unit.delivery.count, message) for offset in offsets]
            )
            self._commit(key, led, led.machine.archive([unit]))

    # Time

    def next_deadline(self) -> float:
        """Return when the next lock expires, infinity if none is held."""
        deadline = self._timers.next_deadline()
        return math.inf if deadline is None else deadline

    def expire(self, now: float) -> Iterable[ShareKey]:
        """End the locks whose time has passed, one for each step, and yield its partition."""
        for key in self._timers.pop_due(now):
            led = self._current(key)
            if led is None:
                continue
            due = led.machine.due(now)
            for unit in due:
                yield from self._expire(key, led, unit)
            if any(unit.delivery.state is RecordState.ACQUIRED for unit in due):
                # The write has failed, and the lock has to end all the same.
                led.machine.next_deadline = min(led.machine.next_deadline, now + RETRY_SECONDS)
            self._write_letters()
            self._schedule(key, led)

    def expire_group(self, group_id: str) -> None:
        """End all locks of a group at once."""
        for key in [key for key in self.partitions if key.group_id == group_id]:
            led = self._current(key)
            if led is not None:
                for unit in led.machine.locked():
                    list(self._expire(key, led, unit))
        self._write_letters()

    async def run(self) -> None:
        """End the locks whose time has passed; ends by cancellation."""
        while True:
            self._waiting_until = self.next_deadline()
            self._rescheduled = anyio.Event()
            with anyio.CancelScope(deadline=self._waiting_until):
                await self._rescheduled.wait()
            self._waiting_until = -math.inf
            for _ in self.expire(anyio.current_time()):
                # As in Kafka, a waiting fetch gets the first records before the next are free. It
                # runs at the latest between two checkpoints.
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
            self._env.changed()

    def _expire(self, key: ShareKey, led: _Led, unit: Unit) -> Iterable[ShareKey]:
        change = led.machine.expire(unit, self._env.settings(key.group_id))
        if change.moves and self._commit(key, led, change) is ErrorCode.NONE:
            self.wake(key)
            yield key

    def _schedule(self, key: ShareKey, led: _Led) -> None:
        deadline = led.machine.next_deadline
        if deadline == math.inf or self.partitions.get(key) is not led:
            self._timers.cancel(key)
        elif deadline != self._timers.deadline(key):
            self._timers.schedule(key, deadline)
            if deadline < self._waiting_until:
                self._rescheduled.set()

    # Waiting fetches

    def watch(self, key: ShareKey, callback: Callable[[], None]) -> None:
        """Call a function at each event that may let a waiting fetch acquire records."""
        self._watchers.setdefault(key, set()).add(callback)

    def unwatch(self, key: ShareKey, callback: Callable[[], None]) -> None:
        """End a watch."""
        watchers = self._watchers.get(key)
        if watchers is not None:
            watchers.discard(callback)
            if not watchers:
                del self._watchers[key]

    def wake(self, key: ShareKey) -> None:
        """Let the waiting fetches of a share-partition look at it again."""
        for callback in tuple(self._watchers.get(key, ())):
            callback()


def _read(source: LedLog, offset: int, max_bytes: int) -> tuple[list[ReadBatch], list[memoryview]]:
    """Read record batches from that of the offset on; the first may exceed the limit of bytes."""
    aborted = source.log.aborted_from(offset) if source.is_committed else []
    read: list[ReadBatch] = []
    raws: list[memoryview] = []
    for batch in source.log.batches(offset):
        header = batch.header
        if header.base_offset >= source.end or (raws and header.size > max_bytes):
            break
        max_bytes -= header.size
        is_aborted = (
            header.is_transactional
            and not header.is_control
            and any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
        )
        read.append(ReadBatch(header.base_offset, header.last_offset, is_aborted))
        raws.append(memoryview(batch.raw))
    return read, raws
