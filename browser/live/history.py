"""Owners of partitions over time, from the records of a group in ``__consumer_offsets``.

Any cluster with groups of the consumer protocol has these records, so that the reader works on
Apache Kafka too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort import ConsumerRecord
from kohort.protocol import Message, decode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)

_TYPE: Final = struct.Struct(">h")
_KEYS: Final[dict[int, type[Message]]] = {
    key.api_key: key
    for key in (ConsumerGroupMemberMetadataKey, ConsumerGroupCurrentMemberAssignmentKey)
}
"""Type of a record -> its key. Records of other types do not change an owner."""


@dataclass
class Span:
    """A time in which a member owned a partition. ``end_ms`` is None while it does."""

    partition: int
    owner: str
    begin_ms: int
    end_ms: int | None = None


class GroupHistory:
    """Owners of the partitions of a group that reads one topic. A member has its ``client_id``."""

    def __init__(self, group_id: str) -> None:
        self.spans: list[Span] = []
        self._group_id = group_id
        self._names: dict[str, str] = {}
        self._open: dict[str, dict[int, Span]] = {}
        """Member id -> partition -> the span that has not ended."""

    def add(self, record: ConsumerRecord[bytes, bytes]) -> None:
        """Add a record of ``__consumer_offsets``. They come in the order of their offsets."""
        if record.key is None:
            return
        (kind,) = _TYPE.unpack_from(record.key)
        if kind not in _KEYS:
            return
        key = decode(_KEYS[kind], 0, memoryview(record.key)[_TYPE.size :])
        body = None if record.value is None else memoryview(record.value)[_TYPE.size :]
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            if body is not None and key.group_id == self._group_id:
                member = decode(ConsumerGroupMemberMetadataValue, 0, body)
                self._names[key.member_id] = member.client_id
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if key.group_id == self._group_id:
                owned = set() if body is None else _owned(body)
                self._own(key.member_id, owned, record.timestamp)

    def owners(self) -> dict[int, str]:
        """Return the present owner of each partition that has one."""
        open_spans = [span for held in self._open.values() for span in held.values()]
        return {span.partition: span.owner for span in open_spans}

    def _own(self, member_id: str, owned: Iterable[int], at_ms: int) -> None:
        held = self._open.setdefault(member_id, {})
        now = set(owned)
        for partition in [each for each in held if each not in now]:
            held.pop(partition).end_ms = at_ms
        for partition in sorted(now - held.keys()):
            held[partition] = Span(partition, self._names.get(member_id, member_id), at_ms)
            self.spans.append(held[partition])


def _owned(body: memoryview) -> set[int]:
    """Return what a member owns. A partition to revoke is its own until it has revoked it."""
    value = decode(ConsumerGroupCurrentMemberAssignmentValue, 0, body)
    topics = [*value.assigned_partitions, *value.partitions_pending_revocation]
    return {number for topic in topics for number in topic.partitions}
