"""Reader of ``__consumer_offsets``: the records that a coordinator writes for one group."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from kohort.broker._hashes import coordinator_partition
from kohort.protocol import Message, decode
from kohort.protocol import messages as m
from kohort.records import split_batches
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.session import Session

TOPIC = "__consumer_offsets"
_INVENTED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=')[\w-]{22}(?=')|0x\w+")
"""Ids that a broker invents, which must not decide the order of records."""
PARTITIONS = 50

KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    1: (m.OffsetCommitKey, m.OffsetCommitValue),
    2: (m.GroupMetadataKey, m.GroupMetadataValue),
    3: (m.ConsumerGroupMetadataKey, m.ConsumerGroupMetadataValue),
    4: (m.ConsumerGroupPartitionMetadataKey, m.ConsumerGroupPartitionMetadataValue),
    5: (m.ConsumerGroupMemberMetadataKey, m.ConsumerGroupMemberMetadataValue),
    6: (m.ConsumerGroupTargetAssignmentMetadataKey, m.ConsumerGroupTargetAssignmentMetadataValue),
    7: (m.ConsumerGroupTargetAssignmentMemberKey, m.ConsumerGroupTargetAssignmentMemberValue),
    8: (m.ConsumerGroupCurrentMemberAssignmentKey, m.ConsumerGroupCurrentMemberAssignmentValue),
    16: (m.ConsumerGroupRegularExpressionKey, m.ConsumerGroupRegularExpressionValue),
}


class Stored(NamedTuple):
    """Record of a group: its kind, and key and value as written and as messages."""

    kind: int
    key: Message
    value: Message | None
    raw: tuple[bytes, bytes | None]

    @property
    def group(self) -> str:
        return str(getattr(self.key, "group", None) or getattr(self.key, "group_id", ""))


class GroupLog:
    """Reader of one group's records, which continues where it stopped."""

    def __init__(self, session: Session, group: str, *, from_start: bool = False) -> None:
        self._session, self._group = session, group
        self.partition = coordinator_partition(group, PARTITIONS)
        self._offset = 0 if from_start else self._end()

    def _end(self) -> int:
        return self._session.end_offsets(TOPIC, PARTITIONS)[self.partition]

    def new(self) -> list[Stored]:
        """Return the group's records that were written since the last call."""
        found = []
        end = self._end()
        while self._offset < end:
            answer = fetch(
                self._session, TOPIC, partition(self.partition, self._offset), version=12
            )
            data = answer.responses[0].partitions[0].records or b""
            for batch in split_batches(bytes(data)):
                for record in batch.records():
                    if record.offset >= self._offset:
                        self._offset = record.offset + 1
                        found.append(decoded(record.key, record.value))
                self._offset = max(self._offset, batch.header.base_offset + 1)
        return [record for record in found if record is not None and record.group == self._group]

    def steps(self, *steps: tuple[str, Callable[[], object]]) -> Iterator[tuple[str, object]]:
        """Do each step, and yield its response and the records that it wrote."""
        for number, (label, step) in enumerate(steps, 1):
            yield f"{number}. {label}", step()
            yield f"{number}. records", sorted_runs(self.new())


def decoded(key: bytes | None, value: bytes | None) -> Stored | None:
    """Return the record with its messages, or None for one of another type."""
    assert key is not None
    (kind,) = struct.unpack_from(">h", key)
    if kind not in KINDS:
        return None
    key_class, value_class = KINDS[kind]
    message = None
    if value is not None:
        (version,) = struct.unpack_from(">h", value)
        message = decode(value_class, version, value[2:])
    # Version 0 of an offset's key has type 0 or 1, which the two share.
    return Stored(kind, decode(key_class, 0, key[2:]), message, (key, value))


def sorted_runs(records: list[Stored]) -> list[Any]:
    """Return the records as observations.

    Kafka writes the records of several members in the order of a hash table. So neighbours of the
    same type are sorted. Hashes and versions that depend on topic ids and time are left out.
    """
    plain = []
    for _, run in groupby(records, key=lambda record: record.kind):
        each = [[record.kind, record.key, _comparable(record.value)] for record in run]
        plain += sorted(each, key=lambda one: _INVENTED.sub("", repr(one)))
    return plain


def _comparable(value: Message | None) -> Any:
    if isinstance(value, m.ConsumerGroupMetadataValue) and value.metadata_hash:
        return {"epoch": value.epoch, "metadata_hash": "<hash>"}
    if isinstance(value, m.ConsumerGroupRegularExpressionValue):
        return {"topics": sorted(value.topics), "timestamp": value.timestamp}
    if isinstance(value, m.ConsumerGroupCurrentMemberAssignmentValue):
        return {
            "member_epoch": value.member_epoch,
            "previous_member_epoch": value.previous_member_epoch,
            "state": value.state,
            "assigned": _pairs(value.assigned_partitions),
            "pending": _pairs(value.partitions_pending_revocation),
        }
    return value


def _pairs(
    topics: list[m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions],
) -> list[dict[str, Any]]:
    """Return each topic with its partitions and the epoch in which each one was assigned."""
    return [
        {
            "topic_id": each.topic_id,
            "assignment_epochs": sorted(
                zip(each.partitions, each.assignment_epochs or [], strict=True)
            ),
        }
        for each in sorted(topics, key=lambda one: sorted(one.partitions))
    ]
