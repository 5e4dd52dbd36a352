"""Observation of what coordinators store and accept, inside the coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kohort.broker.cluster._cluster_state import ClusterState
from kohort.broker.groups import GroupCoordinator, OffsetToCommit
from kohort.broker.groups.classic._records import read_key, read_value
from kohort.errors import ErrorCode, KafkaError
from kohort.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
)
from kohort.testing._snapshots import _partitions
from kohort.transport import BrokerConnection
from kohort.transport.cluster._nodes import Nodes
from kohort.types import TopicPartition
from tests.simulation.events import (
    CommitAccepted,
    ConnectionFailed,
    Event,
    EventLog,
    GenerationStored,
    OffsetStored,
    now,
)

Records = list[tuple[bytes, bytes | None]]
CLOSED_BY_CLIENT = "closed by this client"
"""Part of the error of a connection that the client has closed on purpose."""


@contextmanager
def watching(log: EventLog, record_stored: Callable[[bytes, bytes | None], None]) -> Iterator[None]:
    """Log what coordinators do and which connections fail, in any cluster, within the block.

    ``record_stored`` is called with each record of a coordinator, in their order.
    """
    append: Callable[..., None] = ClusterState._append_group_records
    commit: Callable[..., list[ErrorCode]] = GroupCoordinator.commit
    fail: Callable[..., None] = Nodes._failed
    close: Callable[..., None] = Nodes._closed

    def appended(core: ClusterState, index: int, records: Records) -> None:
        append(core, index, records)
        for key, value in records:
            event = None if value is None else _stored(key, value)
            if event is not None:
                log.add(event)
            record_stored(key, value)

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

    def failed(nodes: Nodes, node: Any, error: KafkaError, *, lost: bool = True) -> None:
        who = nodes._config.client_id
        log.add(ConnectionFailed(at=now(), who=who, error=type(error).__name__, lost=lost))
        fail(nodes, node, error, lost=lost)

    def closed(nodes: Nodes, purpose: str, entry: Any, ended: BrokerConnection) -> None:
        lost = ended.closed_by_us and ended.lost_requests
        if lost and CLOSED_BY_CLIENT not in str(ended.failure):
            error, who = type(ended.failure).__name__, nodes._config.client_id
            log.add(ConnectionFailed(at=now(), who=who, error=error, lost=True))
        close(nodes, purpose, entry, ended)

    with (
        patch.object(Nodes, "_failed", failed),
        patch.object(Nodes, "_closed", closed),
        patch.object(ClusterState, "_append_group_records", appended),
        patch.object(GroupCoordinator, "commit", committed),
    ):
        yield


def _stored(key: bytes, value: bytes) -> Event | None:
    what: Any = read_key(key)
    if not isinstance(what, OffsetCommitKey | GroupMetadataKey):
        return None
    stored: Any = read_value(what, value)
    if isinstance(what, OffsetCommitKey) and isinstance(stored, OffsetCommitValue):
        place = TopicPartition(what.topic, what.partition)
        return OffsetStored(at=now(), partition=place, offset=stored.offset)
    if isinstance(what, GroupMetadataKey) and isinstance(stored, GroupMetadataValue):
        assignments = tuple(
            (member.client_id, member.member_id, _partitions(bytes(member.assignment)))
            for member in stored.members
        )
        return GenerationStored(at=now(), generation=stored.generation, assignments=assignments)
    return None
