"""The share coordinator of one broker, whose only storage is ``__share_group_state``.

It keeps the state of share-partitions for their leaders: the start of the window, and the batches
above it. A partition of the topic is an append-only list of *snapshots* and *updates*. An update
has what a write has changed. After some updates the next write is a snapshot of the whole state.

Two epochs fence writers. The group coordinator has the state epoch, with which it initializes a
state or resets it. The leader of the partition has the leader epoch.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kohort.broker._hashes import coordinator_partition
from kohort.broker.share._state_batches import merged
from kohort.broker.share._values import ShareKey, StateBatch
from kohort.errors import ErrorCode, MessageDecodeError
from kohort.protocol import Buffer, decode, encode
from kohort.protocol.messages import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

STATE_PARTITIONS = 50
"""Number of partitions of ``__share_group_state``."""
NO_OFFSET = -1
"""Start offset of a share-partition that no member has fetched."""
UNKNOWN_COUNT = -1

_INT16 = struct.Struct(">h")
_ID_SIZE = 16

ShareRecords = list[tuple[bytes, bytes | None]]


def state_key(key: ShareKey) -> str:
    """Return the key by which clients look up the share coordinator of a share-partition."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


def parsed_key(text: str) -> ShareKey | None:
    """Return the share-partition that a text from :func:`state_key` names, None for others."""
    group_id, *rest = text.rsplit(":", 2)
    if not group_id or len(rest) != 2 or not rest[1].isdecimal():
        return None
    try:
        topic_id = base64.b64decode(rest[0] + "==", b"-_", validate=True)
    except ValueError:
        return None
    return ShareKey(group_id, topic_id, int(rest[1])) if len(topic_id) == _ID_SIZE else None


def state_partition(key: ShareKey, partitions: int = STATE_PARTITIONS) -> int:
    """Return the partition of ``__share_group_state`` that stores a share-partition."""
    return coordinator_partition(state_key(key), partitions)


@dataclass(slots=True)
class ShareState:
    """The stored state of a share-partition. ``updates`` are those since the last snapshot."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = NO_OFFSET
    batches: list[StateBatch] = field(default_factory=list)
    complete: int = UNKNOWN_COUNT
    updates: int = 0


@dataclass(frozen=True, slots=True)
class ShareCoordinatorEnvironment:
    """Functions of the cluster that a share coordinator calls.

    ``append(partition, records)`` writes to ``__share_group_state``. ``now_ms`` returns the
    wall-clock time.
    """

    append: Callable[[int, ShareRecords], None]
    now_ms: Callable[[], int]
    updates_per_snapshot: int = 500
    partition_count: int = STATE_PARTITIONS


class ShareCoordinator:
    """The states of share-partitions that a broker coordinates.

    The error for a state of another coordinator is NOT_COORDINATOR, and that for an unknown one is
    INVALID_REQUEST.
    """

    def __init__(self, env: ShareCoordinatorEnvironment) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self.partitions: set[int] = set()
        self._env = env

    # Leadership

    def load(self, partition: int, records: Iterable[tuple[Buffer | None, Buffer | None]]) -> None:
        """Load the states of a partition of the topic from its records."""
        self.partitions.add(partition)
        self.states.update(load_states(records))

    def unload(self, partition: int) -> None:
        """Drop the states of a partition of the topic."""
        self.partitions.discard(partition)
        for key in [key for key in self.states if self._partition(key) == partition]:
            del self.states[key]

    def check(self, key: ShareKey) -> ErrorCode:
        """Return NONE if this is the coordinator of the share-partition."""
        here = self._partition(key) in self.partitions
        return ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR

    def _partition(self, key: ShareKey) -> int:
        return state_partition(key, self._env.partition_count)

    # Requests

    def initialize(self, key: ShareKey, state_epoch: int, start: int) -> ErrorCode:
        """Store a new state, or reset the present one."""
        error = self.check(key)
        if error is not ErrorCode.NONE:
            return error
        before = self.states.get(key)
        if before is not None and state_epoch < before.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        state = self.states[key] = ShareState(
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            state_epoch=state_epoch,
            start=start,
            complete=UNKNOWN_COUNT if start == NO_OFFSET else 0,
            updates=0 if before is None else before.updates,
        )
        self._append_snapshot(key, state)
        return ErrorCode.NONE

    def read(self, key: ShareKey, leader_epoch: int) -> ShareState | ErrorCode:
        """Return the state for a leader, whose epoch fences the earlier leaders."""
        state = self._find(key, leader_epoch)
        if isinstance(state, ErrorCode):
            return state
        if leader_epoch > state.leader_epoch:
            state.leader_epoch = leader_epoch
            self._append_update(key, state, [])
        return state

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete: int,
        batches: Sequence[StateBatch],
    ) -> ErrorCode:
        """Store the changes of a leader."""
        state = self._find(key, leader_epoch)
        if isinstance(state, ErrorCode):
            return state
        if state_epoch < state.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        state.leader_epoch = max(state.leader_epoch, leader_epoch)
        state.start = max(state.start, start)
        state.complete = complete
        state.batches = merged(state.batches, batches, state.start)
        if state.updates >= self._env.updates_per_snapshot:
            state.snapshot_epoch += 1
            state.updates = 0
            self._append_snapshot(key, state)
        else:
            self._append_update(key, state, merged([], batches, state.start))
        return ErrorCode.NONE

    def summary(self, key: ShareKey, leader_epoch: int) -> ShareState | ErrorCode:
        """Return the state without a change; one without a start if there is none."""
        error = self.check(key)
        if error is not ErrorCode.NONE:
            return error
        state = self.states.get(key)
        if state is None:
            return ShareState()
        if 0 <= leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return state

    def delete(self, key: ShareKey) -> ErrorCode:
        """Delete a state if it is there."""
        error = self.check(key)
        if error is ErrorCode.NONE and self.states.pop(key, None) is not None:
            self._env.append(self._partition(key), [(_snapshot_key(key), None)])
        return error

    def _find(self, key: ShareKey, leader_epoch: int) -> ShareState | ErrorCode:
        error = self.check(key)
        if error is not ErrorCode.NONE:
            return error
        state = self.states.get(key)
        if state is None:
            return ErrorCode.INVALID_REQUEST
        if leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return state

    # Records

    def _append_snapshot(self, key: ShareKey, state: ShareState) -> None:
        now_ms = self._env.now_ms()
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=[
                ShareSnapshotValue.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.deliveries,
                )
                for batch in state.batches
            ],
            delivery_complete_count=state.complete,
        )
        raw = _INT16.pack(0) + encode(value, 0)
        self._env.append(self._partition(key), [(_snapshot_key(key), raw)])

    def _append_update(
        self, key: ShareKey, state: ShareState, batches: Sequence[StateBatch]
    ) -> None:
        state.updates += 1
        raw_key = _INT16.pack(ShareUpdateKey.api_key) + encode(
            ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
            0,
        )
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start,
            state_batches=[
                ShareUpdateValue.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.deliveries,
                )
                for batch in batches
            ],
            delivery_complete_count=state.complete,
        )
        self._env.append(self._partition(key), [(raw_key, _INT16.pack(0) + encode(value, 0))])


def _snapshot_key(key: ShareKey) -> bytes:
    message = ShareSnapshotKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return _INT16.pack(ShareSnapshotKey.api_key) + encode(message, 0)


def load_states(
    records: Iterable[tuple[Buffer | None, Buffer | None]],
) -> dict[ShareKey, ShareState]:
    """Return the states that the records store, in order; records that do not decode are
    omitted.
    """
    states: dict[ShareKey, ShareState] = {}
    for raw_key, raw_value in records:
        if raw_key is None:
            continue
        try:
            _replay(states, raw_key, raw_value)
        except (MessageDecodeError, struct.error):
            continue
    return states


def _replay(states: dict[ShareKey, ShareState], raw_key: Buffer, raw_value: Buffer | None) -> None:
    (kind,) = _INT16.unpack_from(raw_key)
    if kind not in (ShareSnapshotKey.api_key, ShareUpdateKey.api_key):
        return
    # Both kinds of keys have the same fields.
    named = decode(ShareSnapshotKey, 0, memoryview(raw_key)[2:])
    key = ShareKey(named.group_id, bytes(named.topic_id), named.partition)
    if raw_value is None:
        states.pop(key, None)
        return
    (version,) = _INT16.unpack_from(raw_value)
    body = memoryview(raw_value)[2:]
    if kind == ShareSnapshotKey.api_key:
        snapshot = decode(ShareSnapshotValue, version, body)
        states[key] = ShareState(
            snapshot.snapshot_epoch,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            merged([], _batches(snapshot.state_batches), snapshot.start_offset),
            snapshot.delivery_complete_count,
        )
        return
    update = decode(ShareUpdateValue, version, body)
    state = states.get(key)
    if state is not None:
        state.leader_epoch = update.leader_epoch
        state.start = max(state.start, update.start_offset)
        state.complete = update.delivery_complete_count
        state.batches = merged(state.batches, _batches(update.state_batches), state.start)
        state.updates += 1


def _batches(
    stored: Iterable[ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch],
) -> list[StateBatch]:
    return [
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in stored
    ]
