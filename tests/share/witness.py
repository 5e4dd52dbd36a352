"""Checks of a simulated share group: what brokers, requests and members must never do.

The numbers are those of the invariants in :mod:`tests.share.simulation`. The witness keeps its own
account of locks, delivery counts and finished offsets. It wraps the methods of the brokers, also
those that a planted bug has replaced, and sees each request before the brokers do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import anyio

from kohort import ShareRecord
from kohort.broker.cluster._share_letters import ShareLetters
from kohort.broker.cluster._share_router import _BrokerView
from kohort.broker.share import (
    Ack,
    AckError,
    Fetched,
    SessionKey,
    ShareKey,
    ShareLeader,
    SharePartition,
    ShareState,
    StateBatch,
)
from kohort.broker.share._coordinator import _replay
from kohort.broker.share._in_flight import Unit
from kohort.broker.share._values import AckType, Letter, RecordState
from kohort.errors import ErrorCode

if TYPE_CHECKING:
    from tests.share.simulation import World

Place = tuple[str, int, int]
"""Topic, partition and offset."""

GAP, ACCEPT, RELEASE, REJECT, RENEW = (
    AckType.GAP,
    AckType.ACCEPT,
    AckType.RELEASE,
    AckType.REJECT,
    AckType.RENEW,
)
SESSION_ENDS = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
REFUSED = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
LATE = 1e-6
MOST = 20
"""Violations that end a run. Time may stand still, if members only acquire and release."""


@dataclass
class Lock:
    """One acquisition of an offset."""

    member: str
    deadline: float
    count: int
    taken_at: float
    is_sent: bool = False
    """True if its last acknowledgement was sent and not refused."""


@dataclass
class Life:
    """The memory of one leader of a share-partition."""

    machine: SharePartition
    start: int
    counts: dict[int, int] = field(default_factory=dict)
    locks: dict[int, Lock] = field(default_factory=dict)
    lettered: set[int] = field(default_factory=set)


class Shared:
    """A share-partition over all its leaders."""

    def __init__(self) -> None:
        self.over: set[int] = set()
        """Offsets that are never delivered again."""
        self.accepted: set[int] = set()
        self.stored_over: set[int] = set()
        self.stored_counts: dict[int, int] = {}
        self.stored_start = -1
        self.snapshot_epoch = -1
        self.life: Life | None = None


class Witness:
    """Everything that happened to one group."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[str] = []
        self.figures: Counter[str] = Counter()
        self.shared: defaultdict[ShareKey, Shared] = defaultdict(Shared)
        self.assigned: dict[str, list[tuple[float, frozenset[tuple[bytes, int]]]]] = {}
        """The assignments of each member, with the time of the response."""
        self.own: set[tuple[str, ShareKey, int]] = set()
        """Offsets that a member has finished itself, with its latest acquisition."""
        self.lapsed: dict[tuple[str, ShareKey, int], Lock] = {}
        """Locks that have expired, until their members acquire the offset again."""
        self.unread: defaultdict[str, Counter[tuple[ShareKey, int, int]]] = defaultdict(Counter)
        """Acquisitions that a member has not handed out, with their delivery count."""
        self.handed: set[Place] = set()
        self.is_expiring = False
        self._broken: set[tuple[str, int]] = set()
        """Sessions whose epochs may differ, because a request or response was lost."""
        self._must_open: set[tuple[str, int]] = set()
        self._replayed: dict[ShareKey, ShareState] = {}
        self._positions: Counter[int] = Counter()

    def violate(self, number: int, text: str) -> None:
        self.violations.append(f"{anyio.current_time():.3f} I{number}: {text}")
        if len(self.violations) == MOST:
            self.world.stop()

    def name(self, key: ShareKey) -> str:
        return f"{self.world.names[key.topic_id]}-{key.partition}"

    # -- wrapped methods ----------------------------------------------------------------------

    def watching(self) -> ExitStack:
        """Wrap the methods of the brokers until the end of the block."""
        stack = ExitStack()

        def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
            original = getattr(owner, name)

            def call(*args: Any, **options: Any) -> Any:
                return wrapper(original, *args, **options)

            stack.enter_context(patch.object(owner, name, call))

        wrap(ShareLeader, "load", self._load)
        wrap(ShareLeader, "drop", self._drop)
        wrap(ShareLeader, "fetch", self._fetch)
        wrap(ShareLeader, "acknowledge", self._acknowledge)
        wrap(ShareLeader, "_release", self._release)
        wrap(ShareLeader, "_expire", self._expire)
        wrap(ShareLeader, "expire_group", self._expire_group)
        wrap(_BrokerView, "write_state", self._write_state)
        wrap(ShareLetters, "write", self._write_letters)
        return stack

    def _life(self, leader: ShareLeader, key: ShareKey) -> Life | None:
        """Return the life of a share-partition if this leader has it."""
        led, life = leader.partitions.get(key), self.shared[key].life
        if led is None or life is None or life.machine is not led.machine:
            return None
        return life

    def _load(self, original: Any, leader: ShareLeader, key: ShareKey) -> Any:
        error = original(leader, key)
        led, shared = leader.partitions.get(key), self.shared[key]
        if led is not None and (shared.life is None or shared.life.machine is not led.machine):
            machine = led.machine
            shared.life = Life(machine, machine.start)
            self.figures["lives"] += 1
            if machine.start < shared.stored_start:
                self.violate(7, f"{self.name(key)} begins at {machine.start} again")
            self._check_range(key, 0, machine.start, shared.stored_over)
            for unit in machine.units():
                for offset in range(max(unit.first, machine.start), unit.last + 1):
                    stored = shared.stored_counts.get(offset, 0)
                    if unit.delivery.count != stored:
                        self.violate(4, f"{self.name(key)} {offset} forgot its count of {stored}")
        return error

    def _drop(self, original: Any, leader: ShareLeader, key: ShareKey) -> Any:
        if self._life(leader, key) is not None:
            self.shared[key].life = None
        return original(leader, key)

    def _fetch(
        self,
        original: Any,
        leader: ShareLeader,
        key: ShareKey,
        member: str,
        limit: Any,
        max_bytes: int,
        now: float,
    ) -> Fetched:
        found: Fetched = original(leader, key, member, limit, max_bytes, now)
        life = self._life(leader, key)
        if life is None:
            return found
        self._check_start(key, life)
        deadline = now + self.world.plan.lock
        for first, last, count in found.acquired:
            for offset in range(first, last + 1):
                self._acquired(key, life, offset, count, Lock(member, deadline, count, now))
        window = life.machine.end - life.machine.start + 1
        if found.acquired and window > self.world.plan.max_locks + self.world.plan.batch:
            self.violate(8, f"the window of {self.name(key)} has {window} offsets")
        return found

    def _acquired(self, key: ShareKey, life: Life, offset: int, count: int, lock: Lock) -> None:
        shared, plan = self.shared[key], self.world.plan
        what = f"{self.name(key)} {offset}"
        before = life.locks.get(offset)
        if before is not None:
            self.violate(3, f"{what} is acquired by {lock.member} beside {before.member}")
        if offset in shared.accepted:
            self.violate(5, f"{what} was accepted and is acquired again")
        elif offset in shared.over:
            self.violate(1, f"{what} is over and is acquired again")
        expected = life.counts.get(offset, shared.stored_counts.get(offset, 0)) + 1
        if count != expected or count > plan.limit:
            self.violate(4, f"{what} has the count {count}, not {expected}")
        if self.world.is_hidden(key, offset):
            self.violate(12, f"{what} belongs to an aborted transaction and is acquired")
        life.counts[offset], life.locks[offset] = count, lock
        self.own.discard((lock.member, key, offset))
        self.lapsed.pop((lock.member, key, offset), None)
        self.unread[lock.member][key, offset, count] += 1
        self.figures["acquired"] += 1

    def _acknowledge(
        self,
        original: Any,
        leader: ShareLeader,
        key: ShareKey,
        member: str,
        acks: Sequence[Ack],
        now: float,
        *,
        renews: bool,
    ) -> None:
        life = self._life(leader, key)
        before = None if life is None else _states(life.machine)
        start = 0 if life is None else life.machine.start
        try:
            original(leader, key, member, acks, now, renews=renews)
        except AckError as error:
            life = self._life(leader, key)
            if life is not None:
                after = _states(life.machine)
                if after != before:
                    self.violate(6, f"{error.code.name} has changed {self.name(key)}")
                self._check_start(key, life)
                for offset, lock in life.locks.items():  # renewals before the wrong offset hold
                    delivery = life.machine.state_of(offset)
                    if delivery is not None and delivery.member == lock.member == member:
                        lock.deadline = max(lock.deadline, delivery.deadline)
            raise
        if life is None:
            self.violate(3, f"{self.name(key)} has no leader, and it acknowledges")
            return
        for ack in acks:
            for offset in range(max(ack.first, start), ack.last + 1):
                self._acknowledged(key, life, member, offset, ack.type_of(offset), now)
        self._check_start(key, life)

    def _acknowledged(
        self, key: ShareKey, life: Life, member: str, offset: int, type: int, now: float
    ) -> None:
        shared, lock = self.shared[key], life.locks.get(offset)
        if lock is None or lock.member != member:
            self.violate(3, f"{member} acknowledges {self.name(key)} {offset} without its lock")
            return
        if type == RENEW:
            lock.deadline = now + self.world.plan.lock
            self.figures["renewed"] += 1
            return
        del life.locks[offset]
        self.own.add((member, key, offset))
        if type == RELEASE:
            self._freed(key, offset, lock)
            return
        shared.over.add(offset)
        if type == ACCEPT:
            shared.accepted.add(offset)
            self.figures["accepted"] += 1

    def _freed(self, key: ShareKey, offset: int, lock: Lock) -> None:
        if lock.count >= self.world.plan.limit:
            self.shared[key].over.add(offset)
            self.figures["exhausted"] += 1

    def _release(self, original: Any, leader: ShareLeader, key: ShareKey, member: str) -> None:
        original(leader, key, member)
        life = self._life(leader, key)
        if life is not None:
            for offset, lock in list(life.locks.items()):
                if lock.member == member and not _is_locked(life.machine, offset):
                    del life.locks[offset]
                    self._freed(key, offset, lock)
                    self.figures["released by end"] += 1
            self._check_start(key, life)

    def _expire(
        self, original: Any, leader: ShareLeader, key: ShareKey, led: Any, unit: Unit
    ) -> Iterator[Any]:
        was_locked = unit.delivery.state is RecordState.ACQUIRED
        seen = False
        for each in original(leader, key, led, unit):
            if not seen and was_locked:
                self._expired(leader, key, unit)
            seen = True
            yield each
        if not seen and was_locked:
            self._expired(leader, key, unit)

    def _expired(self, leader: ShareLeader, key: ShareKey, unit: Unit) -> None:
        life = self._life(leader, key)
        if life is None:
            return
        now = anyio.current_time()
        for offset in range(unit.first, unit.last + 1):
            lock = life.locks.get(offset)
            if lock is None or _is_locked(life.machine, offset):
                continue
            del life.locks[offset]
            if not self.is_expiring:
                self.lapsed[lock.member, key, offset] = lock
            what = f"{self.name(key)} {offset}"
            if now < lock.deadline - LATE and not self.is_expiring:
                self.violate(15, f"the lock of {what} expired {lock.deadline - now:.2f} s early")
            self._freed(key, offset, lock)
            self.figures["expired"] += 1
            is_calm = self.world.is_calm(lock.member, lock.taken_at) and not self.is_expiring
            # Below the start of the log, a leader ignores acknowledgements.
            is_gap = self.world.is_gap(key, offset) and offset >= self.world.log_start(key)
            if is_calm and is_gap:
                self.violate(11, f"{what} has no record, and its lock expired")
        self._check_start(key, life)

    def _expire_group(self, original: Any, leader: ShareLeader, group_id: str) -> None:
        self.is_expiring = True
        try:
            original(leader, group_id)
        finally:
            self.is_expiring = False

    def _check_start(self, key: ShareKey, life: Life) -> None:
        start = life.machine.start
        if start < life.start:
            self.violate(7, f"the start of {self.name(key)} fell from {life.start} to {start}")
        if start > life.start:
            self._check_range(key, life.start, start, self.shared[key].over)
        life.start = start

    def _check_range(self, key: ShareKey, first: int, end: int, over: set[int]) -> None:
        begin = max(first, self.world.log_start(key))
        open_ = [o for o in range(begin, end) if o not in over and not self.world.is_hidden(key, o)]
        if open_:
            self.violate(1, f"{self.name(key)} starts at {end}, and {open_[:5]} are not over")

    # -- what is stored -----------------------------------------------------------------------

    def _write_state(
        self,
        original: Any,
        view: Any,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete: int,
        batches: Sequence[StateBatch],
    ) -> ErrorCode:
        if self.world.fails_write():
            self.figures["failed writes"] += 1
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error: ErrorCode = original(view, key, state_epoch, leader_epoch, start, complete, batches)
        if error is ErrorCode.NONE:
            shared = self.shared[key]
            if start < shared.stored_start:
                self.violate(7, f"the stored start of {self.name(key)} falls to {start}")
            self._check_range(key, max(shared.stored_start, 0), start, shared.stored_over)
            shared.stored_start = start
            for first, last, state, count in batches:
                if RecordState(state).is_terminal:
                    shared.stored_over.update(range(first, last + 1))
                for offset in range(first, last + 1):
                    shared.stored_counts[offset] = max(shared.stored_counts.get(offset, 0), count)
            self._check_replay(key)
        return error

    def _check_replay(self, key: ShareKey) -> None:
        """Compare the state of the coordinator with what its records give."""
        for raw_key, raw_value in self.world.new_state_records(self._positions):
            _replay(self._replayed, raw_key, raw_value)
        found, state = self._replayed.get(key), self.world.stored_state(key)
        if found is None or state is None:
            self.violate(9, f"{self.name(key)} has no stored state")
            return
        if _essence(found) != _essence(state):
            self.violate(9, f"the records of {self.name(key)} give {found}, not {state}")
        shared = self.shared[key]
        if state.snapshot_epoch < shared.snapshot_epoch:
            self.violate(7, f"the snapshot epoch of {self.name(key)} falls")
        shared.snapshot_epoch = state.snapshot_epoch

    def _write_letters(
        self, original: Any, letters: Any, node: Any, key: ShareKey, given: Sequence[Letter]
    ) -> None:
        # A leader that loads a share-partition repeats what its predecessor could not archive.
        life = self._life(self.world.leader(node.id), key)
        for offset, _, _ in given:
            self.figures["letters"] += 1
            if life is not None and offset in life.lettered:
                self.violate(16, f"{self.name(key)} {offset} has a second letter")
            if life is not None:
                life.lettered.add(offset)
            self.shared[key].over.add(offset)
        original(letters, node, key, given)

    # -- requests -----------------------------------------------------------------------------

    async def see_heartbeat(self, call: Any) -> Any:
        """Note the assignment that a response has."""
        member = call.message.member_id
        response = await call.proceed()
        now = anyio.current_time()
        history = self.assigned.setdefault(member, [(now, frozenset())])
        if response is None or response.error_code:
            history.append((now, history[-1][1]))
        elif response.assignment is not None:
            history.append(
                (
                    now,
                    frozenset(
                        (bytes(topic.topic_id), number)
                        for topic in response.assignment.topic_partitions
                        for number in topic.partitions
                    ),
                )
            )
        return None

    def _may_fetch(self, member: str, key: ShareKey) -> bool:
        """Return True if a member has a partition, or had it until a moment ago."""
        history = self.assigned.get(member, [])
        since = anyio.current_time() - 1
        for index, (_, partitions) in enumerate(history):
            ended = history[index + 1][0] if index + 1 < len(history) else float("inf")
            if ended >= since and (key.topic_id, key.partition) in partitions:
                return True
        return False

    async def see_request(self, call: Any) -> Any:
        """Check a request for records or with acknowledgements, and its response."""
        message, node = call.message, call.node_id
        member, epoch = message.member_id, message.share_session_epoch
        pair = member, node
        leader: ShareLeader = self.world.leader(node)
        session = leader.sessions._sessions.get(SessionKey(message.group_id, member))
        acks = list(_acks(message))
        self._check_epoch(pair, epoch, None if session is None else session.epoch)
        if hasattr(message, "max_wait_ms"):
            self._check_partitions(message, session, {key for key, _, _ in acks})
        sent = [
            lock for each in acks if (lock := self._check_ack(leader, member, *each)) is not None
        ]
        before = None if session is None else session.epoch
        response = await call.proceed()
        self.figures["requests"] += 1
        code = None if response is None else response.error_code
        if code in SESSION_ENDS:
            self._must_open.add(pair)
        after = leader.sessions._sessions.get(SessionKey(message.group_id, member))
        is_counted = after is not session or (after is not None and after.epoch != before)
        if code is None or not is_counted:
            self._broken.add(pair)
        if response is not None:
            self._note_refusals(message, response, sent)
        return None

    def _check_epoch(self, pair: tuple[str, int], epoch: int, expected: int | None) -> None:
        member, node = pair
        if epoch == 0:
            self._broken.discard(pair)
        elif pair in self._must_open:
            self.violate(10, f"{member} uses epoch {epoch} at {node} after its session has ended")
        elif epoch > 0 and expected is not None and epoch != expected:
            if pair not in self._broken:
                self.violate(10, f"{member} sends epoch {epoch} to {node}, not {expected}")
            self._broken.discard(pair)
        self._must_open.discard(pair)

    def _check_partitions(self, message: Any, session: Any, acked: set[ShareKey]) -> None:
        member = message.member_id
        named = {
            ShareKey(message.group_id, bytes(topic.topic_id), partition.partition_index)
            for topic in message.topics
            for partition in topic.partitions
        }
        forgotten = {
            ShareKey(message.group_id, bytes(topic.topic_id), partition)
            for topic in message.forgotten_topics_data
            for partition in topic.partitions
        }
        kept: set[ShareKey] = set()
        if session is not None and message.share_session_epoch > 0:
            kept = set(session.partitions) - forgotten
        strange = [k for k in (kept | named) - acked if not self._may_fetch(member, k)]
        if strange and self.world.is_calm(member, anyio.current_time() - 2):
            what = ", ".join(map(self.name, strange))
            self.violate(10, f"{member} fetches {what}, which it has not")

    def _check_ack(
        self, leader: ShareLeader, member: str, key: ShareKey, offset: int, type: int
    ) -> Lock | None:
        """Check one acknowledgement. Return its lock if it is the last of it.

        A member may send the acknowledgement of a lock to its former leader just when it locks the
        record at the new one.
        """
        life, what = self._life(leader, key), f"{self.name(key)} {offset}"
        if life is None and (elsewhere := self.shared[key].life) is not None:
            lock = elsewhere.locks.get(offset)
            if (
                lock is not None
                and lock.member == member
                and self.world.is_calm(member, lock.taken_at)
            ):
                self.violate(11, f"{member} acknowledges {what} at another node than its leader")
        now, place = anyio.current_time(), (member, key, offset)
        lock = None if life is None else life.locks.get(offset)
        lapsed = self.lapsed.get(place)
        # A leader takes anything for a deleted record, also a renewal without effect.
        is_deleted = offset < self.world.log_start(key)
        if lapsed is not None and not is_deleted and self.world.is_calm(member, lapsed.taken_at):
            self.violate(11, f"{member} acknowledges {what}, whose lock has expired")
        if type == GAP and not self.world.is_gap(key, offset):
            self.violate(12, f"{member} acknowledges {what} as a gap, and it has a record")
        if lock is None or lock.member != member:
            if place in self.own:
                self.violate(11, f"{member} acknowledges {what} a second time")
            return None
        if now >= lock.deadline and self.world.is_calm(member, lock.taken_at):
            self.violate(11, f"{member} acknowledges {what} {now - lock.deadline:.2f} s late")
        if type == RENEW:
            return None
        if lock.is_sent:
            self.violate(11, f"{member} sends the acknowledgement of {what} a second time")
        lock.is_sent = True
        return lock

    def _note_refusals(self, message: Any, response: Any, sent: list[Lock]) -> None:
        codes = {
            each.acknowledge_error_code if hasattr(each, "acquired_records") else each.error_code
            for topic in response.responses
            for each in topic.partitions
        }
        if response.error_code or not codes.isdisjoint(REFUSED):
            for lock in sent:
                lock.is_sent = False

    # -- members ------------------------------------------------------------------------------

    def see_record(self, member: str, name: str, record: ShareRecord[Any, Any]) -> None:
        """Check a record that a member hands out."""
        key = self.world.key(record.topic, record.partition)
        what = f"{record.topic}-{record.partition} {record.offset}"
        place = key, record.offset, record.delivery_count
        if not self.unread[member][place]:
            self.violate(12, f"{name} hands out {what}, which it has not acquired or handed out")
        else:
            self.unread[member][place] -= 1
        expected = self.world.records[key].get(record.offset)
        if record.value != expected:
            self.violate(12, f"{what} is {record.value!r}, not {expected!r}")
        self.handed.add((record.topic, record.partition, record.offset))
        self.figures["handed"] += 1

    def see_accepted(self, record: ShareRecord[Any, Any]) -> None:
        """Note a record that a commit has accepted without an error."""
        key = self.world.key(record.topic, record.partition)
        shared = self.shared[key]
        self.figures["confirmed"] += 1
        is_done = record.offset in shared.over or record.offset < self.world.log_start(key)
        if not is_done:
            self.violate(5, f"{self.name(key)} {record.offset} is not over, and commit says so")

    def see_closed(self, member: str, name: str) -> None:
        """Check that a member that has closed holds no lock.

        The end of a session releases its partitions. The locks of others are released before, but a
        member counts a lock from the sending of its fetch. After that it sends nothing, although
        the leader counts the lock from its response.
        """
        now, assigned = anyio.current_time(), self.assigned.get(member, [])
        for key, shared in self.shared.items():
            has_it = bool(assigned) and (key.topic_id, key.partition) in assigned[-1][1]
            until = now if has_it else now + min(2.0, self.world.plan.lock / 4)
            locks = {} if shared.life is None else shared.life.locks
            held = [o for o, k in locks.items() if k.member == member and k.deadline > until]
            if held:
                self.violate(13, f"{name} has closed and holds {self.name(key)} {held[:5]}")


def _states(machine: SharePartition) -> list[tuple[int, Any, int, str]]:
    """Return the state of each offset in flight, without the deadlines."""
    return [
        (offset, unit.delivery.state, unit.delivery.count, unit.delivery.member)
        for unit in machine.units()
        for offset in range(unit.first, unit.last + 1)
    ] + [(machine.start, None, machine.complete, "")]


def _is_locked(machine: SharePartition, offset: int) -> bool:
    delivery = machine.state_of(offset)
    return delivery is not None and delivery.state is RecordState.ACQUIRED


def _essence(state: ShareState) -> tuple[Any, ...]:
    return state.snapshot_epoch, state.state_epoch, state.start, state.batches, state.complete


def _acks(message: Any) -> Iterable[tuple[ShareKey, int, int]]:
    for topic in message.topics:
        for partition in topic.partitions:
            key = ShareKey(message.group_id, bytes(topic.topic_id), partition.partition_index)
            for batch in partition.acknowledgement_batches:
                ack = Ack(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
                for offset in range(ack.first, ack.last + 1):
                    yield key, offset, ack.type_of(offset)
