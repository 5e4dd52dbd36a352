"""Rebalances and assignments that a test demands. No member asks for them.

A consumer group gets its new target assignment at once. In a classic group the leader assigns, so
the wanted assignment replaces that of the leader in the next generation.

A partition of a classic group that another member still owns is left out first. Then the group
rebalances again, until every owner has given up what it should. Members of an eager protocol own
nothing when they join, so that one generation is enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups._subscribed import CONSUMER_PROTOCOL_TYPE
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._rebalance import prepare_rebalance
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._embedded_protocol import encode_assignment, read_subscription
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._records import set_assignment_epoch, set_epoch, set_target
from kohort.broker.groups.consumer._subscriptions import metadata_hash


def rebalance(group: AnyGroup, now: float) -> None:
    """Start a rebalance of a group with members, unless one is under way."""
    if isinstance(group, ConsumerGroup):
        _new_epoch(group)
    elif group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, now)


def assign(group: AnyGroup, wanted: Mapping[str, PartitionSets], now: float) -> None:
    """Give each member exactly these partitions, by member id, until the next rebalance."""
    if isinstance(group, ConsumerGroup):
        _new_epoch(group)
        for member_id, target in wanted.items():
            set_target(group, member_id, target)
        set_assignment_epoch(group, group.epoch, group.env.wall_ms(now))
        return
    group.steering = _Steering(group, wanted)
    rebalance(group, now)


def subscribed_topics(group: AnyGroup, member_id: str) -> frozenset[str]:
    """Return the topics of a member. Raise MessageDecodeError if it is no consumer."""
    if isinstance(group, ConsumerGroup):
        return group.topics_of(group.members[member_id])
    metadata = _metadata(group, member_id)
    return read_subscription(metadata, group.env.topics).topics


def _new_epoch(group: ConsumerGroup) -> None:
    group.topics_version = group.env.topics.version
    set_epoch(group, group.epoch + 1, metadata_hash(group))


def _metadata(group: ClassicGroup, member_id: str) -> bytes:
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return group.members[member_id].metadata(group.protocol or "") if is_consumer else b""


class _Steering:
    """The wanted assignment of a classic group, in place of what its leader assigns."""

    def __init__(self, group: ClassicGroup, wanted: Mapping[str, PartitionSets]) -> None:
        self._group = group
        self._wanted = wanted

    def __call__(self, assignments: dict[str, bytes]) -> dict[str, bytes]:
        """Return what the members get now. The last call takes itself out of the group."""
        group = self._group
        if assignments.keys() != self._wanted.keys():  # members came or left meanwhile
            group.steering = None
            return assignments
        topics = group.env.topics
        metadata = {each: _metadata(group, each) for each in assignments}
        owners = {
            (topic_id, partition): member_id
            for member_id in assignments
            for topic_id, owned in read_subscription(metadata[member_id], topics).owned.items()
            for partition in owned
        }
        is_withheld = False
        given: dict[str, bytes] = {}
        for member_id, wanted in self._wanted.items():
            free = {
                topic_id: frozenset(
                    each
                    for each in partitions
                    if owners.get((topic_id, each), member_id) == member_id
                )
                for topic_id, partitions in wanted.items()
            }
            is_withheld |= free != wanted
            given[member_id] = encode_assignment(free, topics, metadata[member_id])
        if not is_withheld:
            group.steering = None
        return given
