"""Value classes of ``kafka.structs``: kafka-python's own where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kohort import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.compat._peer import peer_name

__all__ = [
    "ConsumerGroupMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]


class MemberState:
    """State of a member of a group, as ``ConsumerGroupMetadata.state`` has it."""

    UNJOINED: str = "<unjoined>"
    REBALANCING: str = "<rebalancing>"
    STABLE: str = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """Membership of a consumer, for ``KafkaProducer.send_offsets_to_transaction()``."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


if not TYPE_CHECKING:
    # Producers check the class of what they are given, and programs import it from either place.
    _PEER = {name: peer_name("kafka.structs", name) for name in __all__}
    globals().update({name: found for name, found in _PEER.items() if found is not None})
