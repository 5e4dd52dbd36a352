"""Partitions of a share group that get a state at the share coordinator, or lose it.

Only partitions with a state are assigned. The record is written before and after the share
coordinator is asked, so a new group coordinator knows what was under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.broker.groups.share._group import ShareGroup, StateTopic
from kohort.broker.groups.share._records import append_states
from kohort.errors import ErrorCode

_FIRST_FETCH_DECIDES = -1


def initialize_subscribed(group: ShareGroup) -> bool:
    """Initialize the partitions of subscribed topics that have no state. Return True if any had
    none.

    A topic that is new to the group begins where its first fetch decides. Partitions that a known
    topic gets later begin at 0.
    """
    missing: dict[bytes, StateTopic] = {}
    starts: dict[bytes, int] = {}
    for name in sorted(group.subscribed_topics):
        topic = group.env.topics.named(name)
        if topic is None:
            continue
        known = group.initialized.get(topic.topic_id)
        present = frozenset() if known is None else known.partitions
        lacking = frozenset(range(len(topic.racks))) - present
        if lacking:
            missing[topic.topic_id] = StateTopic(name, lacking)
            starts[topic.topic_id] = _FIRST_FETCH_DECIDES if known is None else 0
    if missing:
        initialize(
            group,
            missing,
            {
                (topic_id, number): starts[topic_id]
                for topic_id, topic in missing.items()
                for number in topic.partitions
            },
        )
    return bool(missing)


def initialize(
    group: ShareGroup,
    topics: Mapping[bytes, StateTopic],
    starts: Mapping[tuple[bytes, int], int],
) -> dict[tuple[bytes, int], ErrorCode]:
    """Give partitions a new state with the group's epoch. Return the error of each of them."""
    group.initializing = dict(topics)
    append_states(group)
    errors: dict[tuple[bytes, int], ErrorCode] = {}
    for topic_id, topic in topics.items():
        for number in sorted(topic.partitions):
            errors[topic_id, number] = group.env.share_states.initialize(
                group.group_id, topic_id, number, group.epoch, starts[topic_id, number]
            )
        done = frozenset(
            number for number in topic.partitions if errors[topic_id, number] is ErrorCode.NONE
        )
        known = group.initialized.get(topic_id, StateTopic(topic.name, frozenset()))
        if done:
            group.initialized[topic_id] = known._replace(partitions=known.partitions | done)
    group.initializing = {}
    append_states(group)
    return errors


def delete_states(group: ShareGroup, topic_ids: Iterable[bytes]) -> dict[bytes, ErrorCode]:
    """Delete the states of topics. Return the error of each of them."""
    topics = {
        topic_id: group.initialized[topic_id]
        for topic_id in topic_ids
        if topic_id in group.initialized
    }
    if not topics:
        return {}
    for topic_id, topic in topics.items():
        del group.initialized[topic_id]
        group.deleting[topic_id] = topic.name
    append_states(group)
    errors: dict[bytes, ErrorCode] = {}
    for topic_id, topic in topics.items():
        results = {
            group.env.share_states.delete(group.group_id, topic_id, number)
            for number in sorted(topic.partitions)
        }
        failed = results - {ErrorCode.NONE}
        errors[topic_id] = min(failed, default=ErrorCode.NONE)
        del group.deleting[topic_id]
    append_states(group)
    return errors


def forget_topic(group: ShareGroup, topic_id: bytes) -> None:
    """Forget the partitions of a topic that was deleted."""
    known = [topics.pop(topic_id, None) for topics in (group.initialized, group.initializing)]
    if any(known):
        append_states(group)
