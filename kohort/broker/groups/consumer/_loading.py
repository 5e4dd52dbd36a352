"""Loading of consumer groups from the records of ``__consumer_offsets``.

Compaction keeps the last record of each key. So records may be in any order, and a tombstone may be
for a member that is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import (
    AssignmentState,
    ClassicData,
    ClassicProtocol,
    ConsumerMember,
    PartitionEpochs,
    ResolvedRegex,
)
from kohort.protocol import Buffer, Message, decode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_INT16 = struct.Struct(">h")

EPOCH_RECORD = 3
"""Type of the record of the group epoch. Its tombstone deletes the group."""

CONSUMER_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    EPOCH_RECORD: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Record type -> its key and value"""


def read_consumer_record(kind: int, key: Buffer, value: Buffer | None) -> tuple[Any, Any]:
    """Return key and value of a record; the value of a tombstone is None."""
    key_class, value_class = CONSUMER_RECORDS[kind]
    decoded = decode(key_class, 0, memoryview(key)[2:])
    if value is None:
        return decoded, None
    (version,) = _INT16.unpack_from(value)
    return decoded, decode(value_class, version, memoryview(value)[2:])


def replay(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Change the group as a record says."""
    _REPLAYS[key.api_key](group, key, value)


def _replay_epoch(
    group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue
) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _replay_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.members.remove(key.member_id)
        return
    classic = value.classic_member_metadata
    group.members.put(
        replace(
            _member(group, key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicData(
                classic.session_timeout_ms,
                tuple(
                    ClassicProtocol(each.name, bytes(each.metadata))
                    for each in classic.supported_protocols
                ),
            ),
        )
    )


def _replay_assignment_epoch(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assigned_at_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
        return
    group.targets[key.member_id] = {
        bytes(each.topic_id): frozenset(each.partitions) for each in value.topic_partitions
    }


def _replay_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is None:
        member = group.members.get(key.member_id)
        if member is not None:
            # As in Kafka, only the tombstone of type 5 removes the member.
            group.members.put(
                replace(
                    member,
                    epoch=-1,
                    previous_epoch=-1,
                    state=AssignmentState.STABLE,
                    assigned={},
                    pending_revocation={},
                )
            )
        return
    epoch = value.member_epoch
    group.members.put(
        replace(
            _member(group, key.member_id),
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=AssignmentState(value.state),
            assigned=_epochs(value.assigned_partitions, epoch),
            pending_revocation=_epochs(value.partitions_pending_revocation, epoch),
        )
    )


def _replay_regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
        return
    group.regexes[key.regular_expression] = ResolvedRegex(
        frozenset(value.topics), value.version, value.timestamp
    )


_REPLAYS: dict[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    EPOCH_RECORD: _replay_epoch,
    5: _replay_member,
    6: _replay_assignment_epoch,
    7: _replay_target,
    8: _replay_current,
    16: _replay_regex,
}


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _epochs(
    partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions],
    member_epoch: int,
) -> PartitionEpochs:
    """Return partitions with their assignment epochs.

    A record without one epoch for each partition, such as an old one, stands for the member epoch.
    """
    return {bytes(each.topic_id): _assignment_epochs(each, member_epoch) for each in partitions}


def _assignment_epochs(
    entry: ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions, member_epoch: int
) -> Mapping[int, int]:
    epochs = entry.assignment_epochs or []
    if len(epochs) != len(entry.partitions):
        return dict.fromkeys(entry.partitions, member_epoch)
    return dict(zip(entry.partitions, epochs, strict=True))
