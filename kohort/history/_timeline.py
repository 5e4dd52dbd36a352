"""The replay of a group's records: owners, rebalances with their causes, and commits. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Literal

from kohort.errors import MessageDecodeError
from kohort.history._records import assignment_of, record_of, topics_of
from kohort.protocol import Message
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.types import NamedTuple, TopicPartition

Protocol = Literal["classic", "consumer", "unknown"]
NO_CAUSE = "the log does not say why"
CREATED = "group created"
"""Text of the first record of a classic group, which has no members yet."""
SECOND_STEP = "partitions that were given up get owners"
"""Text of the second step of a cooperative rebalance: the same members join again."""


class PastMember(NamedTuple):
    """Member of a group, at some time."""

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    """Topics that it subscribed to, or its pattern."""


class OwnershipSpan(NamedTuple):
    """Time in which a member owned a partition."""

    partition: TopicPartition
    member_id: str
    start_ms: int
    end_ms: int | None
    """None if it owns the partition at the end of the history."""


class GroupEvent(NamedTuple):
    """Change of a group."""

    at_ms: int
    kind: Literal["rebalance", "ownership", "deletion"]
    epoch: int
    """Generation of a classic group, or epoch of a group of the consumer protocol."""
    text: str
    """One line: the cause of a rebalance, or who has and who gave up which partitions."""


class Commit(NamedTuple):
    """Committed offset of a partition. ``offset`` is None for a deletion."""

    at_ms: int
    partition: TopicPartition
    offset: int | None


class LagPoint(NamedTuple):
    """Lag of a partition at a past moment."""

    at_ms: int
    partition: TopicPartition
    lag: int


class GroupHistory(NamedTuple):
    """History of a group, from ``since_ms`` to ``until_ms``."""

    group_id: str
    protocol: Protocol
    """Protocol at the end."""
    since_ms: int
    until_ms: int
    complete_since_ms: int
    """Time from which no record can be missing. Before it, compaction may have deleted some."""
    members: dict[str, PastMember]
    """All members by their member id, in the order of their appearance."""
    events: tuple[GroupEvent, ...]
    spans: tuple[OwnershipSpan, ...]
    """By partition and time. A span may begin before ``since_ms``."""
    commits: tuple[Commit, ...]
    lags: tuple[LagPoint, ...] = ()
    """Lag at moments of equal distance, if it was asked for."""
    unread: int = 0
    """Records of the group in a version that this release does not know."""
    samples: tuple[int, ...] = ()
    """Times of the samples, if the history comes from samples of the present.

    A change then has the time of the first sample that shows it.
    """

    @property
    def names(self) -> dict[str, str]:
        """Name of each member: its instance or client id, with the end of its id if shared."""
        plain = {
            each.member_id: each.group_instance_id or each.client_id
            for each in self.members.values()
        }
        shared = list(plain.values())
        return {
            member: name if shared.count(name) == 1 else f"{name} ({member[-6:]})"
            for member, name in plain.items()
        }

    def owners_at(self, at_ms: int) -> dict[TopicPartition, PastMember]:
        """Return the owner of each partition at a moment. Partitions without one are left out."""
        return {
            each.partition: self.members[each.member_id]
            for each in self.spans
            if each.start_ms <= at_ms and (each.end_ms is None or at_ms < each.end_ms)
        }

    def committed_at(self, at_ms: int) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition at a moment."""
        found: dict[TopicPartition, int | None] = {}
        for each in self.commits:
            if each.at_ms <= at_ms:
                found[each.partition] = each.offset
        return {tp: offset for tp, offset in found.items() if offset is not None}


class GroupState(NamedTuple):
    """Members and owners of a group in a sample."""

    protocol: Protocol
    epoch: int | None
    """Group epoch. None in a classic group, whose description has no generation."""
    members: dict[str, PastMember]
    has: dict[str, frozenset[TopicPartition]]


class Timeline:
    """The replay. See the top of the package for its invariants."""

    def __init__(self, group_id: str, topic_names: Mapping[uuid.UUID, str] | None = None) -> None:
        self._group_id = group_id
        self._topic_names = topic_names or {}
        self._now = 0
        self._protocol: Protocol = "unknown"
        self._epoch = -1
        self._settled_epoch = -1
        self._hash = 0
        self._present: dict[str, PastMember] = {}
        self._settled: dict[str, PastMember] = {}
        self._has: dict[str, frozenset[TopicPartition]] = {}
        self._hashes_differ = False
        self._is_deleted = False
        self._open: dict[TopicPartition, tuple[str, int]] = {}
        self._free_since: dict[TopicPartition, int] = {}
        self._members: dict[str, PastMember] = {}
        self._events: list[GroupEvent] = []
        self._spans: list[OwnershipSpan] = []
        self._commits: list[Commit] = []
        self._next_offset: int | None = None
        self._complete_since = 0
        self._is_sampled = False
        self._sampled_offsets: dict[TopicPartition, int] = {}
        self.unread = 0

    def add(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Replay a record of the partition, of any group."""
        if offset != (self._next_offset or 0):
            self._complete_since = at_ms
        self._next_offset = offset + 1
        try:
            found = record_of(key, value, self._group_id)
        except (MessageDecodeError, ValueError):
            self.unread += 1
            return
        if found is None:
            return
        if at_ms != self._now:
            self._settle()
            self._now = at_ms
        self._apply(*found)

    def sample(
        self, at_ms: int, state: GroupState | None, committed: Mapping[TopicPartition, int]
    ) -> None:
        """Compare a sample of the group with the one before. None stands for a deleted group."""
        self._now = at_ms
        if state is None:
            self._is_deleted = bool(self._sampled_offsets or self._present or self._epoch >= 0)
            self._epoch = -1
        else:
            self._protocol, self._present, self._has = state.protocol, state.members, state.has
            self._epoch = -1 if state.epoch is None else state.epoch
            self._members.update(state.members)
            if not self._is_sampled:
                self._settled, self._settled_epoch = self._present, self._epoch
            elif state.epoch is None and self._present != self._settled:
                self._events.append(GroupEvent(at_ms, "rebalance", -1, self._cause()))
        self._is_sampled = True
        self._settle()
        for tp in sorted(committed.keys() | self._sampled_offsets.keys()):
            if committed.get(tp) != self._sampled_offsets.get(tp):
                self._commits.append(Commit(at_ms, tp, committed.get(tp)))
        self._sampled_offsets = dict(committed)

    def finish(self, since_ms: int, until_ms: int) -> GroupHistory:
        """Return the history of this time."""
        self._settle()
        spans = [
            *self._spans,
            *(OwnershipSpan(tp, who, at, None) for tp, (who, at) in self._open.items()),
        ]
        kept = [
            span
            for span in spans
            if span.start_ms <= until_ms and (span.end_ms is None or span.end_ms > since_ms)
        ]
        events = tuple(each for each in self._events if since_ms <= each.at_ms <= until_ms)
        return GroupHistory(
            self._group_id,
            self._protocol,
            since_ms,
            until_ms,
            self._complete_since,
            self._members,
            events,
            tuple(sorted(kept, key=lambda span: (span.partition, span.start_ms))),
            tuple(each for each in self._commits if each.at_ms <= until_ms),
            unread=self.unread,
        )

    # -- records ----------------------------------------------------------------------------------

    def _apply(self, key: Message, value: Message | None) -> None:
        if isinstance(key, OffsetCommitKey):
            offset = value.offset if isinstance(value, OffsetCommitValue) else None
            tp = TopicPartition(key.topic, key.partition)
            self._commits.append(Commit(self._now, tp, offset))
        elif isinstance(key, GroupMetadataKey):
            self._apply_classic(value if isinstance(value, GroupMetadataValue) else None)
        elif isinstance(key, ConsumerGroupMetadataKey):
            if isinstance(value, ConsumerGroupMetadataValue):
                self._protocol, self._epoch = "consumer", value.epoch
                self._is_deleted = False
                self._hashes_differ |= value.metadata_hash != self._hash
                self._hash = value.metadata_hash
            elif self._protocol == "consumer":
                self._is_deleted = True
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                self._protocol = "consumer"
                topics = value.subscribed_topic_names or [value.subscribed_topic_regex or ""]
                self._put(
                    PastMember(
                        key.member_id,
                        value.client_id,
                        value.client_host,
                        value.instance_id,
                        frozenset(topics),
                    )
                )
            else:
                self._remove(key.member_id)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                self._has[key.member_id] = frozenset(
                    TopicPartition(self._topic(each.topic_id), number)
                    for part in (value.assigned_partitions, value.partitions_pending_revocation)
                    for each in part
                    for number in each.partitions
                )
            else:
                self._has.pop(key.member_id, None)

    def _apply_classic(self, value: GroupMetadataValue | None) -> None:
        if value is None:
            if self._protocol == "classic":
                self._is_deleted = True
                self._clear()
            return
        self._clear()
        self._protocol, self._epoch, self._is_deleted = "classic", value.generation, False
        for each in value.members:
            self._put(
                PastMember(
                    each.member_id,
                    each.client_id,
                    each.client_host,
                    each.group_instance_id,
                    topics_of(bytes(each.subscription)),
                )
            )
            self._has[each.member_id] = frozenset(assignment_of(bytes(each.assignment)))

    def _clear(self) -> None:
        self._present, self._has = {}, {}

    def _put(self, member: PastMember) -> None:
        self._present = {**self._present, member.member_id: member}
        self._members[member.member_id] = member

    def _remove(self, member_id: str) -> None:
        self._present = {key: each for key, each in self._present.items() if key != member_id}
        self._has.pop(member_id, None)

    def _topic(self, topic_id: bytes) -> str:
        found = uuid.UUID(bytes=bytes(topic_id))
        return self._topic_names.get(found, str(found))

    # -- changes ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Compare the state after a moment with the one before it, and note what changed."""
        if self._is_deleted:
            self._events.append(GroupEvent(self._now, "deletion", self._epoch, "group deleted"))
            self._is_deleted = False
            self._clear()
        elif self._epoch != self._settled_epoch and self._epoch >= 0:
            cause, hidden = self._cause(), self._epoch - self._settled_epoch - 1
            if self._is_sampled and self._settled_epoch >= 0 and hidden > 0:
                cause += f", in {hidden + 1} rebalances since the sample before"
            self._events.append(GroupEvent(self._now, "rebalance", self._epoch, cause))
        self._settled, self._settled_epoch = self._present, self._epoch
        self._hashes_differ = False
        self._settle_owners()

    def _cause(self) -> str:
        before, after = self._settled, self._present
        if self._settled_epoch < 0 and not before and not after:
            return CREATED
        parts = []
        if joined := [each for key, each in after.items() if key not in before]:
            parts.append(f"{_names(joined)} joined")
        if left := [each for key, each in before.items() if key not in after]:
            parts.append(f"{_names(left)} left")
        changed = [
            each
            for key, each in after.items()
            if key in before and before[key].topics != each.topics
        ]
        if changed:
            parts.append(f"{_names(changed)} changed the subscription")
        if not parts and self._hashes_differ:
            parts.append("the partitions of the topics changed")
        if not parts and self._free_since.keys() & {
            tp for each in self._has.values() for tp in each
        }:
            parts.append(SECOND_STEP)
        return ", ".join(parts) or NO_CAUSE

    def _settle_owners(self) -> None:
        owners = {tp: member for member, tps in sorted(self._has.items()) for tp in tps}
        lost: dict[str, list[TopicPartition]] = {}
        gained: dict[str, list[TopicPartition]] = {}
        for tp, (member, start) in list(self._open.items()):
            if owners.get(tp) != member:
                self._spans.append(OwnershipSpan(tp, member, start, self._now))
                lost.setdefault(member, []).append(tp)
                self._free_since[tp] = self._now
                del self._open[tp]
        free: dict[str, int] = {}
        for tp, member in owners.items():
            if tp not in self._open:
                self._open[tp] = member, self._now
                gained.setdefault(member, []).append(tp)
                seconds = self._now - self._free_since.pop(tp, self._now)
                free[member] = max(free.get(member, 0), seconds)
        for member, tps in lost.items():
            self._note_owner(member, f"gave up {partitions_text(tps)}")
        for member, tps in gained.items():
            is_known = free[member] and not self._is_sampled
            gap = f", without an owner for {free[member] / 1000:.2f} s" if is_known else ""
            self._note_owner(member, f"has {partitions_text(tps)}{gap}")

    def _note_owner(self, member: str, text: str) -> None:
        known = self._members.get(member)
        name = member if known is None else _names([known])
        self._events.append(GroupEvent(self._now, "ownership", self._epoch, f"{name} {text}"))
        if known is None:
            self._members[member] = PastMember(member, member, "")


def _names(members: Iterable[PastMember]) -> str:
    return ", ".join(each.group_instance_id or each.client_id for each in members)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as text, such as ``orders 0-2 5, payments 1``."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return ", ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
