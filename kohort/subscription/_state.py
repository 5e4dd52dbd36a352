"""The state of a subscription: mode, assignment and positions."""

from __future__ import annotations

import re
import reprlib
import threading
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from kohort.errors import IllegalStateError, NotAssignedError
from kohort.records import WakeUp
from kohort.subscription._iteration_run import NO_RUN, PartitionRun
from kohort.subscription._partition import (
    FetchTarget,
    NextFetch,
    OffsetReset,
    PartitionState,
    PendingReset,
    RecreatedPartition,
    SubscriptionMode,
    SubscriptionSnapshot,
)
from kohort.subscription._topic_ids import NO_ID, Recreation, TopicHistory
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, SubscriptionPattern, TopicPartition

_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
_SUBSCRIBED = frozenset(
    {SubscriptionMode.TOPICS, SubscriptionMode.PATTERN, SubscriptionMode.BROKER_PATTERN}
)
_SHORT = reprlib.Repr()
_SHORT.maxlist = 5
_SHORT.maxstring = 60


class SubscriptionState:
    """The topics, the assignment and the positions of one consumer.

    The docstring of the package says what the lock guards.
    """

    def __init__(self, default_reset: OffsetReset = OffsetReset.LATEST) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.history: TopicHistory = TopicHistory()
        self._run = NO_RUN
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._recreated: set[TopicPartition] = set()
        self.touched: dict[TopicPartition, None] = {}
        """Partitions with a change that may affect their fetches. The lock guards it."""
        self.wake_up: WakeUp = WakeUp()
        """The event of every change that decides which records may be delivered."""
        self.default_reset = default_reset
        self.changes: int = 0
        """A counter that grows when a partition's epoch changes or a partition is revoked."""
        self._mode = SubscriptionMode.NONE
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | SubscriptionPattern | None = None
        self._assigned = _NO_PARTITIONS
        self._epochs = 0
        self._moved: dict[TopicPartition, PartitionState] = {}

    def __repr__(self) -> str:
        # Without the lock: another thread may have held it at a fork.
        if self._pattern is not None:
            return f"pattern={_SHORT.repr(self._pattern.pattern)}"
        if self._mode is SubscriptionMode.MANUAL:
            partitions = [f"{topic}-{index}" for topic, index in sorted(self._assigned)]
            return f"partitions={_SHORT.repr(partitions)}"
        return f"topics={_SHORT.repr(sorted(self._topics))}"

    # --- topics ---------------------------------------------------------------------------------

    @property
    def mode(self) -> SubscriptionMode:
        return self._mode

    @property
    def is_subscribed(self) -> bool:
        """True after subscribe(), so that the group or the topics decide the assignment."""
        return self._mode in _SUBSCRIBED

    @property
    def broker_pattern(self) -> str:
        """The pattern that the brokers evaluate, or ""."""
        pattern = self._pattern
        return pattern.pattern if isinstance(pattern, SubscriptionPattern) else ""

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern that the consumer evaluates."""
        return self._pattern if isinstance(self._pattern, re.Pattern) else None

    def topics(self) -> frozenset[str]:
        """Return the topics subscribed to, matched by the pattern, or of the manual assignment."""
        with self.lock:
            if self._mode is SubscriptionMode.MANUAL:
                return frozenset(tp.topic for tp in self._partitions)
            return self._topics

    def subscribe(self, topics: Iterable[str], *, replaces: bool = False) -> None:
        """Subscribe to these topics, in place of any others.

        Partitions of other topics are no longer delivered. ``replaces``: also replace a pattern.
        """
        if isinstance(topics, str):
            raise TypeError("subscribe() takes a list of topic names, not one string")
        wanted = frozenset(topics)
        with self.lock:
            self._set_mode(SubscriptionMode.TOPICS, replaces=replaces)
            self._pattern = None
            self._set_topics(wanted)

    def subscribe_pattern(self, pattern: str | re.Pattern[str], *, replaces: bool = False) -> None:
        """Subscribe to every topic whose name the pattern matches from its beginning.

        ``replaces``: also replace named topics. Their partitions are no longer delivered.
        """
        compiled = re.compile(pattern)
        with self.lock:
            self._set_mode(SubscriptionMode.PATTERN, replaces=replaces)
            self._pattern = compiled
            if replaces:
                self._set_topics(frozenset(name for name in self._topics if compiled.match(name)))

    def subscribe_broker_pattern(
        self, pattern: SubscriptionPattern, *, replaces: bool = False
    ) -> None:
        """Subscribe to every topic whose whole name the pattern matches, as the brokers see it."""
        with self.lock:
            self._set_mode(SubscriptionMode.BROKER_PATTERN, replaces=replaces)
            self._pattern = pattern
            self._set_topics(frozenset(tp.topic for tp in self._assigned))

    def match_topics(self, names: Iterable[str]) -> bool:
        """Match the pattern with the cluster's topics, and return True if the matches changed."""
        with self.lock:
            pattern = self.pattern
            if pattern is None:
                return False
            wanted = frozenset(name for name in names if pattern.match(name))
            if wanted == self._topics:
                return False
            self._set_topics(wanted)
            return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions without a group. Remaining ones keep their state."""
        wanted = frozenset(partitions)
        with self.lock:
            self._set_mode(SubscriptionMode.MANUAL)
            self._set_assigned(wanted)

    def unsubscribe(self) -> None:
        """Drop the subscription and the assignment."""
        with self.lock:
            self._mode = SubscriptionMode.NONE
            self._topics, self._pattern = frozenset(), None
            self._set_assigned(_NO_PARTITIONS)

    def _set_mode(self, mode: SubscriptionMode, *, replaces: bool = False) -> None:
        allowed = {SubscriptionMode.NONE, mode}
        if replaces:
            allowed |= _SUBSCRIBED
        if self._mode not in allowed:
            raise IllegalStateError(
                f"{_MODE_CALLS[mode]} failed: the consumer already uses "
                f"{_MODE_CALLS[self._mode]}. Call unsubscribe() first"
            )
        self._mode = mode

    def _set_topics(self, topics: frozenset[str]) -> None:
        self._stop_run()
        self._topics = topics
        for tp, state in self._partitions.items():
            state.is_unsubscribed = tp.topic not in topics
            self.touch(tp)

    # --- assignment -----------------------------------------------------------------------------

    def assigned(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions in an immutable set. Any thread may call it."""
        return self._assigned

    def assign_from_group(
        self, partitions: Iterable[TopicPartition], withheld: Collection[TopicPartition] = ()
    ) -> frozenset[TopicPartition]:
        """Set the assignment of the group, and return the new partitions, without a position.

        Partitions that remain keep position, pause and records. ``withheld`` are not delivered.
        """
        wanted = frozenset(partitions)
        with self.lock:
            if self._mode not in _SUBSCRIBED:
                raise IllegalStateError("the group assigned partitions without a subscription")
            added = wanted - self._assigned
            self._set_assigned(wanted)
            if self._mode is SubscriptionMode.BROKER_PATTERN:
                self._topics = frozenset(tp.topic for tp in wanted)
            for tp in wanted:
                self._partitions[tp].pending_revocation = tp in withheld
                self._partitions[tp].is_unsubscribed = tp.topic not in self._topics
            self.touched.update(dict.fromkeys(self._partitions))
            return added

    def revoke(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Remove these partitions, and return those that were assigned."""
        with self.lock:
            revoked = self._assigned.intersection(partitions)
            self._set_assigned(self._assigned - revoked)
            return revoked

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """End fetches and deliveries of these. They remain assigned until :meth:`revoke`."""
        with self.lock:
            self._stop_run()
            for tp in partitions:
                if state := self._partitions.get(tp):
                    state.pending_revocation = True
                    self.touch(tp)

    def clear_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and deliver these partitions again."""
        with self.lock:
            self._stop_run()
            for tp in partitions:
                if state := self._partitions.get(tp):
                    state.pending_revocation = False
                    self.touch(tp)

    def _set_assigned(self, wanted: frozenset[TopicPartition]) -> None:
        if wanted == self._assigned:
            return
        kept = {tp: state for tp, state in self._partitions.items() if tp in wanted}
        for tp in sorted(self._assigned - wanted):
            self.touch(tp)
            self._moved.pop(tp, None)
        for tp in sorted(wanted - kept.keys()):
            kept[tp] = PartitionState(tp, self._new_epoch())
            self.touch(tp)
        self._partitions, self._assigned = kept, wanted
        self.changes += 1
        self._stop_run()

    def start_run(self, run: PartitionRun) -> None:
        """Let the caller take records without the lock. The caller holds the lock now."""
        self._run.apply()
        self._run = run

    def stop_run(self, run: PartitionRun) -> None:
        """End a run. The caller holds the lock."""
        if self._run is run:
            self._stop_run()

    def _stop_run(self) -> None:
        self.wake_up.set()
        self._run.apply()
        self._run = NO_RUN

    def _new_epoch(self) -> int:
        """Return an epoch that no partition has had, so that every stale fetch is recognized."""
        self._epochs += 1
        self.changes += 1
        self._stop_run()
        return self._epochs

    # --- positions ------------------------------------------------------------------------------

    def partition(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of an assigned partition. The caller holds the lock."""
        if self._run is not NO_RUN:
            self._run.apply()
        state = self._partitions.get(tp)
        if state is not None:
            self._moved[tp] = state  # the caller of the method may move the position
        return state

    def partition_at(self, tp: TopicPartition, epoch: int) -> PartitionState | None:
        """Return the state if the partition still has this epoch. The caller holds the lock."""
        if self._run is not NO_RUN:
            self._run.apply()
        state = self._partitions.get(tp)
        if state is None or state.epoch != epoch:
            return None
        self._moved[tp] = state  # the caller of the method may move the position
        return state

    def _assigned_partition(self, tp: TopicPartition) -> PartitionState:
        state = self.partition(tp)
        if state is None:
            raise NotAssignedError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer. "
                "Call assignment() to see its partitions"
            )
        return state

    def position(self, tp: TopicPartition) -> int | None:
        """Return the next offset for the caller, or None while it is unknown."""
        with self.lock:
            return self._assigned_partition(tp).position

    def seek(
        self, tp: TopicPartition, offset: int, leader_epoch: int = -1, *, until: int | None = None
    ) -> None:
        """Continue at ``offset`` and drop the buffered records. ``until`` ends the fetching."""
        if offset < 0:
            raise ValueError(
                f"seek of {tp.topic}-{tp.partition} to {offset} failed: it must be >= 0"
            )
        with self.lock:
            state = self._assigned_partition(tp)
            state.epoch = self._new_epoch()
            state.status.last_error = state.status.started_at_end = None
            state.move_to(offset, leader_epoch)
            state.next_fetch.end = until
            self._bind(tp, state, self.history.current_id(tp.topic))
            self.touch(tp)

    def forget_fetched(self) -> None:
        """Fetch again from the positions, because the buffered records are lost."""
        with self.lock:
            self._stop_run()
            for state in self._partitions.values():
                self.refetch_from(state)

    def refetch_from(self, state: PartitionState) -> None:
        """Drop the buffered records of a partition. The caller holds the lock."""
        state.epoch = self._new_epoch()
        fetch = state.next_fetch
        fetch.offset, fetch.leader_epoch = state.position, state.leader_epoch
        self.touch(state.topic_partition)

    def skip_to(self, state: PartitionState, offset: int) -> None:
        """Skip the records before ``offset``. The caller holds the lock."""
        # Skipped records may have a later epoch than the last record before them.
        if state.position is not None:
            state.note_epochs((state.position, -1))
        state.position, state.leader_epoch = offset, -1
        self.refetch_from(state)

    def request_reset(self, tp: TopicPartition, strategy: OffsetReset | None = None) -> None:
        """Look the position up by a rule, or by the default one."""
        with self.lock:
            self.start_reset(self._assigned_partition(tp), strategy)

    def start_reset(self, state: PartitionState, strategy: OffsetReset | None = None) -> None:
        """Request a reset. The caller holds the lock."""
        state.epoch = self._new_epoch()
        state.position = state.consumed = None
        state.leader_epoch = -1
        state.next_fetch = NextFetch()
        state.status.last_error = None
        if state.is_recreated:  # these offsets are of the old topic
            state.status.watermarks = None
        state.topic_id, state.is_recreated, state.is_first = NO_ID, False, False
        state.reset = strategy or self.default_reset
        self.touch(state.topic_partition)

    def set_position(
        self,
        tp: TopicPartition,
        offset: int,
        leader_epoch: int = -1,
        *,
        epoch: int,
        topic_id: bytes | None = None,
        by_rule: OffsetReset | None = None,
    ) -> bool:
        """Set a position that was looked up, if the partition still has this epoch.

        ``topic_id``: the id of the topic at the request, or None for the current one. ``by_rule``:
        the rule of ``auto_offset_reset`` that gave the position, or None. Returns False if the
        partition was sought meanwhile, so that its epoch or position differs.
        """
        with self.lock:
            state = self.partition_at(tp, epoch)
            if state is None or state.position is not None:
                return False
            state.move_to(offset, leader_epoch)
            state.status.last_error = None
            state.status.started_at_end = offset if by_rule == OffsetReset.LATEST else None
            self._bind(
                tp, state, self.history.current_id(tp.topic) if topic_id is None else topic_id
            )
            self.touch(tp)
            return True

    def reset_if_unknown(self, tp: TopicPartition, *, epoch: int) -> None:
        """Look the first position up, if the partition still waits at this epoch."""
        with self.lock:
            state = self.partition_at(tp, epoch)
            if state is not None and state.awaits_position:
                self.start_reset(state)
                state.is_first = True

    def awaiting_position(self) -> dict[TopicPartition, int]:
        """Return the epochs of partitions without a position or a pending reset."""
        with self.lock:
            return {
                tp: state.epoch for tp, state in self._partitions.items() if state.awaits_position
            }

    def pending_resets(self) -> list[PendingReset]:
        """Return the partitions whose positions must be looked up by a rule."""
        with self.lock:
            found = [self.pending_reset(state) for state in self._partitions.values()]
            return [pending for pending in found if pending is not None]

    def pending_reset(self, state: PartitionState) -> PendingReset | None:
        """Return the pending reset of a partition, or None. The caller holds the lock."""
        if state.reset is None or state.is_leaving:
            return None
        tp = state.topic_partition
        return PendingReset(
            tp, state.epoch, state.reset, state.is_first, self.history.current_id(tp.topic)
        )

    def note_log_ends(self, ends: Mapping[TopicPartition, OffsetAndTimestamp]) -> None:
        """Note log ends that the caller looked up, for the leader epochs of later commits."""
        with self.lock:
            for tp, end in ends.items():
                if (state := self._partitions.get(tp)) is not None:
                    state.status.log_end = end.offset, end.leader_epoch

    def with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Add the leader epoch of the record before each offset that has none.

        With it, a consumer that starts at the offset notices that the record was truncated.
        """
        with self.lock:
            self._run.apply()
            return {
                tp: at
                if at.leader_epoch >= 0 or (state := self._partitions.get(tp)) is None
                else at._replace(leader_epoch=state.epoch_before(at.offset))
                for tp, at in offsets.items()
            }

    def positions_for_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all assigned partitions that have one.

        Positions in topics that were recreated since are left out.
        """
        with self.lock:
            self._run.apply()
            return {
                tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
                for tp, state in self._partitions.items()
                if state.position is not None and not state.is_recreated
            }

    def note_consumed(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """Note that the caller has processed all records it received, so they may be committed.

        ``partitions`` limits the call to these partitions.
        """
        with self.lock:
            self._stop_run()
            if partitions is not None:
                for tp in partitions & self._moved.keys():
                    self._moved.pop(tp).note_consumed()
                return
            # Code that moves a position gets the state from partition(), which notes it in _moved.
            for state in self._moved.values():
                state.consumed, state.consumed_epoch = state.position, state.leader_epoch
            self._moved.clear()

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions as of the latest :meth:`note_consumed`, seek or look-up.

        A partition that was revoked and assigned again starts without an offset. Positions in
        topics that were recreated since are left out.
        """
        with self.lock:
            self._run.apply()
            return {
                tp: OffsetAndMetadata(state.consumed, "", state.consumed_epoch)
                for tp, state in self._partitions.items()
                if state.consumed is not None and not state.is_recreated
            }

    # --- fetches --------------------------------------------------------------------------------

    def fetch_targets(self) -> list[FetchTarget]:
        """Return the next offset to fetch of every partition that may be fetched."""
        with self.lock:
            found = [state.fetch_target() for state in self._partitions.values()]
            return [target for target in found if target is not None]

    def pause(self, partitions: Iterable[TopicPartition], owner: str | None = None) -> None:
        """Deliver no records of these until :meth:`resume`, and keep their buffered records."""
        with self.lock:
            for state in [self._assigned_partition(tp) for tp in partitions]:
                state.paused_by |= {owner}
                self.touch(state.topic_partition)
            self._stop_run()

    def resume(self, partitions: Iterable[TopicPartition], owner: str | None = None) -> None:
        """Deliver these again, unless another owner pauses them."""
        with self.lock:
            for state in [self._assigned_partition(tp) for tp in partitions]:
                state.paused_by -= {owner}
                self.touch(state.topic_partition)
            self._stop_run()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions that are paused."""
        with self.lock:
            return frozenset(tp for tp, state in self._partitions.items() if state.paused)

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """Return the offset after the last replicated record by the latest fetch, or None."""
        with self.lock:
            watermarks = self._assigned_partition(tp).watermarks
            return None if watermarks is None else watermarks.high_watermark

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset before the first open transaction by the latest fetch, or None."""
        with self.lock:
            watermarks = self._assigned_partition(tp).watermarks
            return None if watermarks is None else watermarks.last_stable_offset

    def snapshot(self) -> SubscriptionSnapshot:
        """Return a copy of the whole state."""
        with self.lock:
            self._run.apply()
            return SubscriptionSnapshot(
                self._mode,
                self._topics,
                self._pattern.pattern if self._pattern else None,
                MappingProxyType({tp: s.copy() for tp, s in self._partitions.items()}),
            )

    # --- the topics that positions belong to ----------------------------------------------------

    def note_topic_ids(self, ids: Mapping[str, bytes]) -> list[Recreation]:
        """Note the topic ids of the metadata, and return the topics that were recreated since.

        Their positions are kept, but no longer used for fetches or commits. A first position that
        is being looked up by a rule is looked up again.
        """
        with self.lock:
            self._run.apply()
            found = self.history.note_ids(ids)
            recreated_topics = {each.topic for each in found}
            for tp, state in self._partitions.items():
                self.touch(tp)
                if tp.topic in recreated_topics:
                    state.status.log_end = None
                if state.position is None:
                    if tp.topic in recreated_topics and state.is_first:
                        state.epoch, state.reset = self._new_epoch(), None
                    continue
                if tp.topic in recreated_topics:
                    self.history.note_deleted_offsets(
                        tp, {state.position, state.consumed or 0} - {0}
                    )
                if state.topic_id == NO_ID or tp.topic in recreated_topics:
                    known = self.history.confirmed_id(tp.topic)
                    self._bind(tp, state, known if state.topic_id == NO_ID else state.topic_id)
            return found

    def touch(self, tp: TopicPartition) -> None:
        """Note a change that may affect fetches of a partition. The caller holds the lock."""
        self.touched[tp] = None

    def touch_all(self) -> None:
        """Call :meth:`touch` for every assigned partition, under the lock."""
        with self.lock:
            self.touched.update(dict.fromkeys(self._partitions))

    def take_touched(self) -> dict[TopicPartition, None]:
        """Return and forget the touched partitions in order. The caller holds the lock."""
        touched, self.touched = self.touched, {}
        return touched

    def _bind(self, tp: TopicPartition, state: PartitionState, topic_id: bytes) -> None:
        state.topic_id = topic_id
        self.history.note_position(tp, topic_id)
        state.is_recreated = self.history.is_former(tp.topic, topic_id)
        if state.is_recreated:
            self._recreated.add(tp)

    def recreated_partitions(self) -> list[RecreatedPartition]:
        """Return the partitions with positions in topics that were recreated since."""
        if not self._recreated:
            return []
        with self.lock:
            self._run.apply()
            self._recreated = {
                tp for tp in self._recreated if (s := self._partitions.get(tp)) and s.is_recreated
            }
            return [
                RecreatedPartition(
                    tp,
                    state.epoch,
                    state.position,
                    state.topic_id,
                    self.history.current_id(tp.topic),
                )
                for tp in sorted(self._recreated)
                if (state := self._partitions[tp]).position is not None
            ]

    def note_committing(
        self,
        partitions: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """Note offsets that are committed or about to be, and the ids of their topics."""
        with self.lock:
            for tp, at in partitions.items():
                if not self.history.is_former(tp.topic, ids.get(tp, NO_ID)):
                    self.history.note_offset(tp, at.offset)

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the topic ids of the positions, or the current ids without a position."""
        with self.lock:
            return {
                tp: state.topic_id
                if (state := self._partitions.get(tp)) is not None and state.topic_id != NO_ID
                else self.history.current_id(tp.topic)
                for tp in partitions
            }


_MODE_CALLS = {
    SubscriptionMode.TOPICS: "subscribe(topics)",
    SubscriptionMode.PATTERN: "subscribe(pattern=...)",
    SubscriptionMode.BROKER_PATTERN: "subscribe(pattern=SubscriptionPattern(...))",
    SubscriptionMode.MANUAL: "assign()",
}
