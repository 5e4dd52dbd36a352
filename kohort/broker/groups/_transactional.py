"""Offsets of open transactions: TxnOffsetCommit, and the offsets that no consumer reads yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._loading import stored_offset
from kohort.broker.groups._member import CommittedOffset
from kohort.broker.groups._offsets import OffsetToCommit, committed_offset
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._records import (
    offset_commit_key,
    offset_commit_value,
    read_key,
    read_value,
)
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._offset_checks import validate_consumer_transaction
from kohort.errors import ErrorCode
from kohort.protocol import Buffer
from kohort.protocol.messages import OffsetCommitKey, OffsetCommitValue, TxnOffsetCommitRequest

GroupPartition: TypeAlias = tuple[str, str, int]
"""(group, topic, partition)."""


@dataclass(slots=True)
class _PendingOffset:
    """A pending offset.

    ``order`` is the order of writing. ``outdated`` is True if another commit was written later.
    """

    offset: CommittedOffset
    order: int
    outdated: bool


class PendingOffsets:
    """Pending offsets by producer id, which has at most one transaction at a time.

    The offset that was written last wins, independent of which transaction ends last.
    """

    __slots__ = ("_offsets", "_orders")

    def __init__(self) -> None:
        self._offsets: dict[int, dict[GroupPartition, _PendingOffset]] = {}
        self._orders = itertools.count()

    def add(
        self,
        producer_id: int,
        group_partition: GroupPartition,
        offset: CommittedOffset,
        *,
        outdated: bool = False,
    ) -> None:
        pending = _PendingOffset(offset, next(self._orders), outdated)
        self._offsets.setdefault(producer_id, {})[group_partition] = pending

    def mark_outdated(self, group_partition: GroupPartition, before: int | None = None) -> None:
        """Mark earlier pending offsets as outdated, all or those ``before`` an order."""
        for offsets in self._offsets.values():
            pending = offsets.get(group_partition)
            if pending is not None and (before is None or pending.order < before):
                pending.outdated = True

    def remove(self, group_partition: GroupPartition) -> None:
        """Remove the pending offsets of a partition whose committed offset was deleted."""
        for offsets in self._offsets.values():
            offsets.pop(group_partition, None)

    def remove_topic(self, topic: str) -> None:
        for offsets in self._offsets.values():
            for group_partition in [
                group_partition for group_partition in offsets if group_partition[1] == topic
            ]:
                del offsets[group_partition]

    def pending_partitions(self, group_id: str) -> set[tuple[str, int]]:
        """Return the (topic, partition) pairs whose offset an open transaction may change."""
        return {
            (topic, partition)
            for offsets in self._offsets.values()
            for group, topic, partition in offsets
            if group == group_id
        }

    def pop_offsets(
        self, producer_id: int, belongs: Callable[[str], bool]
    ) -> Iterator[tuple[GroupPartition, _PendingOffset]]:
        """Remove the producer's offsets of the groups that belong, and yield those not outdated."""
        offsets = self._offsets.get(producer_id, {})
        for group_partition in [
            group_partition for group_partition in offsets if belongs(group_partition[0])
        ]:
            pending = offsets.pop(group_partition)
            if not pending.outdated:
                yield group_partition, pending
        if not offsets:
            self._offsets.pop(producer_id, None)

    def remove_groups(self, belongs: Callable[[str], bool]) -> None:
        """Remove all offsets of the groups that belong."""
        for producer_id in list(self._offsets):
            list(self.pop_offsets(producer_id, belongs))


def validate_transactional_commit(
    group: AnyGroup,
    request: TxnOffsetCommitRequest,
    offsets: Sequence[OffsetToCommit],
    version: int,
) -> ErrorCode:
    """Return NONE if this producer may commit for the group now, else the error.

    A producer without member data, as before KIP-447, may always commit.
    """
    if isinstance(group, ConsumerGroup):
        partitions = [(offset.topic, offset.partition) for offset in offsets]
        return validate_consumer_transaction(group, request, partitions, version)
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation_id_or_member_epoch < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    has_member = (
        request.generation_id_or_member_epoch >= 0
        or request.member_id
        or request.group_instance_id is not None
    )
    if not has_member:
        return ErrorCode.NONE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id_or_member_epoch != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    return error


def commit_pending(
    group: AnyGroup,
    producer_id: int,
    offsets: Sequence[OffsetToCommit],
    pending: PendingOffsets,
    now: float,
) -> tuple[list[ErrorCode], list[tuple[bytes, bytes | None]]]:
    """Return one error code for each offset, and the records of the accepted ones."""
    errors: list[ErrorCode] = []
    records: list[tuple[bytes, bytes | None]] = []
    accepted = []
    for new in offsets:
        committed = committed_offset(group, new, now)
        if isinstance(committed, ErrorCode):
            errors.append(committed)
            continue
        accepted.append(((group.group_id, new.topic, new.partition), committed))
        key = offset_commit_key(group.group_id, new.topic, new.partition)
        records.append((key, offset_commit_value(committed)))
        errors.append(ErrorCode.NONE)
    # An error above leaves the pending offsets as they are.
    for group_partition, committed in accepted:
        pending.add(producer_id, group_partition, committed)
    return errors, records


def load_pending(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, bool]],
    groups: dict[str, AnyGroup],
    pending: PendingOffsets,
    env: GroupEnvironment,
) -> None:
    """Load the pending offsets from (producer id, key, value, outdated) records."""
    for producer_id, raw_key, raw_value, outdated in records:
        key = None if raw_key is None else read_key(raw_key)
        if not isinstance(key, OffsetCommitKey) or raw_value is None:
            continue
        value = read_value(key, raw_value)
        if isinstance(value, OffsetCommitValue):
            if key.group not in groups:
                groups[key.group] = ClassicGroup(key.group, env)
            group_partition = key.group, key.topic, key.partition
            pending.add(producer_id, group_partition, stored_offset(value), outdated=outdated)
