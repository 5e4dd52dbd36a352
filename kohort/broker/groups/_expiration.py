"""Expiration of committed offsets, and of empty groups without offsets (KIP-211).

The start of the retention time depends on the group:

- A group without members: the time when it became empty.
- A group with consumers: the commit, for topics without a subscriber.
- A group that only stores offsets: the commit.
- A group of the consumer protocol: the commit, for topics without a subscriber.
"""

from __future__ import annotations

import math

from kohort.broker.groups._member import CommittedOffset
from kohort.broker.groups._offsets import append_offset_tombstones
from kohort.broker.groups._subscribed import CONSUMER_PROTOCOL_TYPE, is_subscribed
from kohort.broker.groups._transactional import PendingOffsets
from kohort.broker.groups.classic._records import group_metadata_key
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._records import delete_group_records


def expire(group: AnyGroup, pending: PendingOffsets, now: float) -> bool:
    """Write tombstones for expired offsets; return True if the group itself has expired."""
    kept = pending.pending_partitions(group.group_id)
    now_ms = group.env.wall_ms(now)
    expired = [
        topic_partition
        for topic_partition, committed in group.offsets.items()
        if topic_partition not in kept
        and _expires_ms(group, topic_partition[0], committed) <= now_ms
    ]
    append_offset_tombstones(group, expired)
    remains = kept or len(expired) < len(group.offsets)
    is_expired = not remains and _append_end(group)
    # An error above leaves the group as it is.
    for topic_partition in expired:
        del group.offsets[topic_partition]
    return is_expired


def _append_end(group: AnyGroup) -> bool:
    """Append the tombstones of the group itself if it is empty; return True if so."""
    if isinstance(group, ConsumerGroup):
        if group.members:
            return False
        delete_group_records(group)
        return True
    if group.state is not GroupState.EMPTY:
        return False
    group.env.append(group.group_id, group_metadata_key(group.group_id), None)
    return True


def next_expiration(group: AnyGroup) -> float:
    """Return the clock time of the next expiration as the group is now, infinity if there
    is none.
    """
    times = (_expires_ms(group, topic, at) for (topic, _), at in group.offsets.items())
    return (min(times, default=math.inf) - group.env.epoch_ms) / 1000


def _expires_ms(group: AnyGroup, topic: str, committed: CommittedOffset) -> float:
    """Return the wall-clock time when the offset expires, infinity if it does not."""
    if isinstance(group, ConsumerGroup):
        if group.is_subscribed(topic):
            return math.inf
        if committed.expire_timestamp_ms >= 0:
            return committed.expire_timestamp_ms
        return committed.commit_timestamp_ms + _retention_ms(group)
    empty = group.state is GroupState.EMPTY
    in_use = group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    if (group.protocol_type is not None and not empty and not in_use) or is_subscribed(
        group, topic
    ):
        return math.inf
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms
    if group.protocol_type is not None and empty and group.state_timestamp_ms >= 0:
        since_ms = group.state_timestamp_ms
    return since_ms + _retention_ms(group)


def _retention_ms(group: AnyGroup) -> int:
    return group.env.config.offsets_retention_minutes * 60_000
