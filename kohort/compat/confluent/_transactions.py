"""Offsets and group membership in the form that confluent-kafka's transactional producer takes.

::

    producer.send_offsets_to_transaction(
        confluent.offsets(consumer.positions()), confluent.group_metadata(consumer)
    )

The coordinator of the group then refuses the offsets of a member that the group has replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol

from kohort import OffsetAndMetadata, TopicPartition

__all__ = ["HasGroupMetadata", "group_metadata", "offsets"]

_FORMAT = b"CGMDv2:"
"""Version of librdkafka's serialized ``ConsumerGroupMetadata``, as of librdkafka 1.9."""


class HasGroupMetadata(Protocol):
    """Any consumer with ``group_metadata()``: both of kohort's, and those of ``kohort.compat``."""

    def group_metadata(self) -> Any:
        """Return the group id, generation, member id and group instance id."""


def group_metadata(consumer: HasGroupMetadata) -> bytes:
    """Return the membership for ``confluent_kafka.Producer.send_offsets_to_transaction()``.

    Raises ValueError without a group.
    """
    member = consumer.group_metadata()
    if member.group_id is None:
        raise ValueError("group_metadata() failed: the consumer has no group. Give it a group_id")
    instance = member.group_instance_id
    return b"".join(
        (
            _FORMAT,
            struct.pack("=i", member.generation_id),
            member.group_id.encode() + b"\0",
            member.member_id.encode() + b"\0",
            b"\1" if instance is None else b"\0" + instance.encode() + b"\0",
        )
    )


def offsets(
    positions: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> list[Any]:
    """Return offsets as a list of ``confluent_kafka.TopicPartition``.

    Each is the offset of the next record to read, as ``consumer.positions()`` has it. Raises
    ImportError without confluent-kafka.
    """
    import confluent_kafka

    found: list[Any] = []
    for tp, value in positions.items():
        at = OffsetAndMetadata(value) if isinstance(value, int) else value
        epoch = {"leader_epoch": at.leader_epoch} if at.leader_epoch >= 0 else {}
        found.append(
            confluent_kafka.TopicPartition(
                tp.topic, tp.partition, at.offset, metadata=at.metadata, **epoch
            )
        )
    return found
