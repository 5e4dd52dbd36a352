"""What the coordinators write and accept, seen where it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
)
from kohort.testing._core import ClusterCore
from kohort.testing._snapshots import _partitions
from kohort.testing.groups import GroupCoordinator
from kohort.testing.groups._offsets import OffsetToCommit
from kohort.testing.groups._records import read_key, read_value
from kohort.types import TopicPartition
from tests.simulation.events import (
    CommitAccepted,
    Event,
    EventLog,
    GenerationStored,
    OffsetStored,
    now,
)

Records = list[tuple[bytes, bytes | None]]


@contextmanager
def watching(log: EventLog) -> Iterator[None]:
    """Note all that coordinators do, in any cluster of this process, within the block."""
    append: Callable[..., None] = ClusterCore._append_group_records
    commit: Callable[..., list[ErrorCode]] = GroupCoordinator.commit

    def appended(core: ClusterCore, index: int, records: Records) -> None:
        append(core, index, records)
        for key, value in records:
            event = None if value is None else _stored(key, value)
            if event is not None:
                log.add(event)

    def committed(
        coordinator: GroupCoordinator,
        request: OffsetCommitRequest,
        offsets: Sequence[OffsetToCommit],
        version: int,
    ) -> list[ErrorCode]:
        errors = commit(coordinator, request, offsets, version)
        taken = tuple(
            (TopicPartition(offset.topic, offset.partition), offset.offset)
            for offset, error in zip(offsets, errors, strict=True)
            if error is ErrorCode.NONE
        )
        if taken:
            generation = request.generation_id_or_member_epoch
            log.add(
                CommitAccepted(
                    at=now(), member_id=request.member_id, generation=generation, offsets=taken
                )
            )
        return errors

    with (
        patch.object(ClusterCore, "_append_group_records", appended),
        patch.object(GroupCoordinator, "commit", committed),
    ):
        yield


def _stored(key: bytes, value: bytes) -> Event | None:
    what: Any = read_key(key)
    told: Any = read_value(what, value)
    if isinstance(what, OffsetCommitKey) and isinstance(told, OffsetCommitValue):
        place = TopicPartition(what.topic, what.partition)
        return OffsetStored(at=now(), partition=place, offset=told.offset)
    if isinstance(what, GroupMetadataKey) and isinstance(told, GroupMetadataValue):
        assignments = tuple(
            (member.client_id, member.member_id, _partitions(bytes(member.assignment)))
            for member in told.members
        )
        return GenerationStored(at=now(), generation=told.generation, assignments=assignments)
    return None
