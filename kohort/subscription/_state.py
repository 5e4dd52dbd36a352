"""The subscription as a whole: modes, ownership, positions."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from types import MappingProxyType

from kohort.errors import IllegalStateError, NotAssignedError
from kohort.records import WakeUp
from kohort.subscription._bound import BoundPositions
from kohort.subscription._history import NO_ID
from kohort.subscription._iteration_run import NO_RUN, PartitionRun
from kohort.subscription._partition import (
    FetchTarget,
    OffsetReset,
    PartitionState,
    PendingReset,
    SubscriptionMode,
    SubscriptionSnapshot,
)
from kohort.types import OffsetAndMetadata, TopicPartition

_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class SubscriptionState(BoundPositions):
    """What one consumer wants, owns and has read. See the package's text for who may touch what."""

    def __init__(self, default_reset: OffsetReset = OffsetReset.LATEST) -> None:
        super().__init__()
        self.wake_up: WakeUp = WakeUp()
        """Rings at whatever changes which records may be handed out."""
        self.default_reset = default_reset
        self.changes: int = 0
        """Grows whenever a partition's epoch changes or a partition goes."""
        self._mode = SubscriptionMode.NONE
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._assigned = _NO_PARTITIONS
        self._epochs = 0
        self._moved: dict[TopicPartition, PartitionState] = {}

    # --- what is wanted -------------------------------------------------------------------------

    @property
    def mode(self) -> SubscriptionMode:
        return self._mode

    @property
    def pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    def topics(self) -> frozenset[str]:
        """The topics subscribed to, matched by the pattern, or of the assigned partitions."""
        with self.lock:
            if self._mode is SubscriptionMode.MANUAL:
                return frozenset(tp.topic for tp in self._partitions)
            return self._topics

    def subscribe(self, topics: Iterable[str], *, replaces: bool = False) -> None:
        """Want these topics, in place of any others; partitions of the others are withheld.

        ``replaces``: in place of a pattern, too.
        """
        if isinstance(topics, str):
            raise TypeError("subscribe() takes a list of topic names, not one string")
        wanted = frozenset(topics)
        with self.lock:
            self._set_mode(SubscriptionMode.TOPICS, replaces=replaces)
            self._pattern = None
            self._set_topics(wanted)

    def subscribe_pattern(self, pattern: str | re.Pattern[str], *, replaces: bool = False) -> None:
        """Want every topic whose name the pattern matches from its beginning.

        ``replaces``: in place of named topics, too. Partitions of those are withheld.
        """
        compiled = re.compile(pattern)
        with self.lock:
            self._set_mode(SubscriptionMode.PATTERN, replaces=replaces)
            self._pattern = compiled
            if replaces:
                self._set_topics(frozenset(name for name in self._topics if compiled.match(name)))

    def match_topics(self, names: Iterable[str]) -> bool:
        """In pattern mode: take the cluster's topics; True if the wanted ones changed."""
        with self.lock:
            if self._pattern is None:
                return False
            wanted = frozenset(name for name in names if self._pattern.match(name))
            if wanted == self._topics:
                return False
            self._set_topics(wanted)
            return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Own exactly these partitions, without a group; those owned before keep their state."""
        wanted = frozenset(partitions)
        with self.lock:
            self._set_mode(SubscriptionMode.MANUAL)
            self._set_assigned(wanted)

    def unsubscribe(self) -> None:
        """Want and own nothing."""
        with self.lock:
            self._mode = SubscriptionMode.NONE
            self._topics, self._pattern = frozenset(), None
            self._set_assigned(_NO_PARTITIONS)

    def _set_mode(self, mode: SubscriptionMode, *, replaces: bool = False) -> None:
        allowed = {SubscriptionMode.NONE, mode}
        if replaces:
            allowed |= {SubscriptionMode.TOPICS, SubscriptionMode.PATTERN}
        if self._mode not in allowed:
            raise IllegalStateError(
                f"the consumer takes its partitions by {_MODE_CALLS[self._mode]} already and "
                f"cannot take them by {_MODE_CALLS[mode]} at the same time: "
                "call unsubscribe() first"
            )
        self._mode = mode

    def _set_topics(self, topics: frozenset[str]) -> None:
        self._stop_run()
        self._topics = topics
        for tp, state in self._partitions.items():
            state.is_unsubscribed = tp.topic not in topics
            self.touch(tp)

    # --- what is owned --------------------------------------------------------------------------

    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions owned now; an immutable set, safe from any thread."""
        return self._assigned

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Own exactly these; returns the new ones, which wait for a position.

        Those owned before keep their positions, their pause and what is buffered of them.
        """
        wanted = frozenset(partitions)
        with self.lock:
            if self._mode not in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN):
                raise IllegalStateError("a group assigned partitions, but nothing is subscribed to")
            added = wanted - self._assigned
            self._set_assigned(wanted)
            for tp in wanted:
                self._partitions[tp].pending_revocation = False
                self._partitions[tp].is_unsubscribed = tp.topic not in self._topics
            self._touched.update(dict.fromkeys(self._partitions))
            return added

    def revoke(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Own these no more; returns those that were owned."""
        with self.lock:
            revoked = self._assigned.intersection(partitions)
            self._set_assigned(self._assigned - revoked)
            return revoked

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and deliver nothing more of these; they stay owned until :meth:`revoke`."""
        with self.lock:
            self._stop_run()
            for tp in partitions:
                if state := self._partitions.get(tp):
                    state.pending_revocation = True
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
        """Let the caller take records without the lock, which it holds now."""
        self._run.apply()
        self._run = run

    def stop_run(self, run: PartitionRun) -> None:
        """That was enough. The caller holds the lock."""
        if self._run is run:
            self._stop_run()

    def _stop_run(self) -> None:
        self.wake_up.set()
        self._run.apply()
        self._run = NO_RUN

    def _new_epoch(self) -> int:
        """Unique over partitions and ownerships, so that a stale fetch can never look current."""
        self._epochs += 1
        self.changes += 1
        self._stop_run()
        return self._epochs

    # --- positions ------------------------------------------------------------------------------

    def partition(self, tp: TopicPartition) -> PartitionState | None:
        """The state of an assigned partition. The caller holds the lock."""
        self._run.apply()
        state = self._partitions.get(tp)
        if state is not None:
            self._moved[tp] = state  # the caller may move the position
        return state

    def partition_at(self, tp: TopicPartition, epoch: int) -> PartitionState | None:
        """The state if the partition is still at this epoch. The caller holds the lock."""
        state = self.partition(tp)
        return state if state is not None and state.epoch == epoch else None

    def _assigned_partition(self, tp: TopicPartition) -> PartitionState:
        state = self.partition(tp)
        if state is None:
            raise NotAssignedError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer; "
                "see assignment() for what is"
            )
        return state

    def position(self, tp: TopicPartition) -> int | None:
        """The next offset to hand to the caller; None while it is not known."""
        with self.lock:
            return self._assigned_partition(tp).position

    def seek(
        self, tp: TopicPartition, offset: int, leader_epoch: int = -1, *, until: int | None = None
    ) -> None:
        """Continue at ``offset``; what was fetched before is dropped.

        From ``until`` on nothing is fetched.
        """
        if offset < 0:
            raise ValueError(f"cannot seek {tp.topic}-{tp.partition} to {offset}: must be >= 0")
        with self.lock:
            state = self._assigned_partition(tp)
            state.epoch = self._new_epoch()
            state.last_error = None
            state.move_to(offset, leader_epoch)
            state.fetch_end = until
            self._bind(tp, state, self.history.current_id(tp.topic))
            self.touch(tp)

    def forget_fetched(self) -> None:
        """What was fetched and not handed out is gone: continue at the positions."""
        with self.lock:
            self._stop_run()
            for state in self._partitions.values():
                self.refetch_from(state)

    def refetch_from(self, state: PartitionState) -> None:
        """Drop what was fetched of a partition and not handed out. The caller holds the lock."""
        state.epoch = self._new_epoch()
        state.fetch_offset, state.fetch_leader_epoch = state.position, state.leader_epoch
        self.touch(state.topic_partition)

    def skip_to(self, state: PartitionState, offset: int) -> None:
        """Pass over what is before ``offset`` without handing it out. The caller holds the lock."""
        # What is passed over may be of a later epoch than the last record before it.
        state.position, state.leader_epoch = offset, -1
        self.refetch_from(state)

    def request_reset(self, tp: TopicPartition, strategy: OffsetReset | None = None) -> None:
        """Continue where the rule (else the default one) says, once it has been looked up."""
        with self.lock:
            self.start_reset(self._assigned_partition(tp), strategy)

    def start_reset(self, state: PartitionState, strategy: OffsetReset | None = None) -> None:
        """:meth:`request_reset` for code that holds the lock."""
        state.epoch = self._new_epoch()
        state.position = state.fetch_offset = state.fetch_end = state.consumed = None
        state.leader_epoch = state.fetch_leader_epoch = -1
        state.last_error = None
        if state.is_recreated:  # what the brokers said of the old topic
            state.high_watermark = state.last_stable_offset = state.log_start_offset = None
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
    ) -> bool:
        """Take a position that was looked up, if the partition is still at that epoch.

        ``topic_id``: the id that the topic had when it was asked for; None: the one of now. False
        if the epoch is another one, or there is a position by now: the partition was sought.
        """
        with self.lock:
            state = self.partition_at(tp, epoch)
            if state is None or state.position is not None:
                return False
            state.move_to(offset, leader_epoch)
            state.last_error = None
            self._bind(
                tp, state, self.history.current_id(tp.topic) if topic_id is None else topic_id
            )
            self.touch(tp)
            return True

    def reset_if_unknown(self, tp: TopicPartition, *, epoch: int) -> None:
        """Have the first position looked up, if the partition still waits at that epoch."""
        with self.lock:
            state = self.partition_at(tp, epoch)
            if state is not None and state.awaits_position:
                self.start_reset(state)
                state.is_first = True

    def awaiting_position(self) -> dict[TopicPartition, int]:
        """Partitions with neither a position nor a reset under way -> their epochs."""
        with self.lock:
            return {
                tp: state.epoch for tp, state in self._partitions.items() if state.awaits_position
            }

    def pending_resets(self) -> list[PendingReset]:
        """The partitions whose position is to be looked up by a rule."""
        with self.lock:
            found = [self.pending_reset(state) for state in self._partitions.values()]
            return [pending for pending in found if pending is not None]

    def pending_reset(self, state: PartitionState) -> PendingReset | None:
        """The rule to look the position up by; None without one. The caller holds the lock."""
        if state.reset is None or state.is_leaving:
            return None
        tp = state.topic_partition
        return PendingReset(
            tp, state.epoch, state.reset, state.is_first, self.history.current_id(tp.topic)
        )

    def positions_for_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all owned partitions that have one: what was consumed up to.

        Without those in topics that were recreated since.
        """
        with self.lock:
            self._run.apply()
            return {
                tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
                for tp, state in self._partitions.items()
                if state.position is not None and not state.is_recreated
            }

    def note_consumed(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """The caller is done with all that it was given before: it may be committed.

        ``partitions``: that holds for these only; None: for all.
        """
        with self.lock:
            self._stop_run()
            if partitions is not None:
                for tp in partitions & self._moved.keys():
                    self._moved.pop(tp).note_consumed()
                return
            # Whatever moves a position got the state from partition() since the last call.
            for state in self._moved.values():
                state.consumed, state.consumed_epoch = state.position, state.leader_epoch
            self._moved.clear()

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions as of the latest :meth:`note_consumed`, or put by a seek or look-up since.

        Bound to the ownership: a partition that was revoked and comes back starts again. Positions
        in topics that were recreated since are left out.
        """
        with self.lock:
            self._run.apply()
            return {
                tp: OffsetAndMetadata(state.consumed, "", state.consumed_epoch)
                for tp, state in self._partitions.items()
                if state.consumed is not None and not state.is_recreated
            }

    # --- what may be fetched --------------------------------------------------------------------

    def fetch_targets(self) -> list[FetchTarget]:
        """What to ask for next of every partition that is positioned, not paused, not leaving."""
        with self.lock:
            found = [state.fetch_target() for state in self._partitions.values()]
            return [target for target in found if target is not None]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver nothing of these until :meth:`resume`; what is buffered stays buffered."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver these again."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self.lock:
            for state in [self._assigned_partition(tp) for tp in partitions]:
                state.paused = paused
                self.touch(state.topic_partition)
            self._stop_run()

    def paused(self) -> frozenset[TopicPartition]:
        """The owned partitions that are paused."""
        with self.lock:
            return frozenset(tp for tp, state in self._partitions.items() if state.paused)

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The offset after the last replicated record, as of the latest fetch; None before one."""
        with self.lock:
            return self._assigned_partition(tp).high_watermark

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        """The end of what is decided, as of the latest fetch; None before one."""
        with self.lock:
            return self._assigned_partition(tp).last_stable_offset

    def snapshot(self) -> SubscriptionSnapshot:
        """A copy of everything."""
        with self.lock:
            self._run.apply()
            return SubscriptionSnapshot(
                self._mode,
                self._topics,
                self._pattern.pattern if self._pattern else None,
                MappingProxyType({tp: copy.copy(s) for tp, s in self._partitions.items()}),
            )


_MODE_CALLS = {
    SubscriptionMode.TOPICS: "subscribe(topics)",
    SubscriptionMode.PATTERN: "subscribe(pattern=...)",
    SubscriptionMode.MANUAL: "assign()",
}
