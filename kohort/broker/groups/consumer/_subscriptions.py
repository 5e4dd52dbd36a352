"""Subscriptions of a consumer group: the group epoch, and the resolution of patterns.

The group epoch grows when subscriptions change, or when the hash shows a change of the subscribed
topics. Patterns are resolved after the heartbeat that needs it, so its response knows nothing of
the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups._topic_view import TopicInfo
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import ConsumerMember, ResolvedRegex
from kohort.broker.groups.consumer._metadata_hash import NO_TOPIC, group_hash, topic_hash
from kohort.broker.groups.consumer._re2j import Regex, RegexError, Work, compile_regex
from kohort.broker.groups.consumer._records import delete_regex, set_epoch, set_regex
from kohort.errors import ErrorCode

MIN_REFRESH_MS = 10_000
"""Shortest time between two resolutions of a group's patterns."""

_RESOLUTION_DELAY_MS = 1


class RegexChange(Enum):
    """Effect of a heartbeat on the member's pattern."""

    NONE = "none"
    CHANGED = "changed"
    CHANGED_AND_RESOLVED = "changed and resolved"


def metadata_hash(group: ConsumerGroup) -> int:
    """Return the hash of the subscribed topics and their partitions."""
    return topics_hash(group.env, group.subscribed_topics)


def topics_hash(env: GroupEnvironment, names: Iterable[str]) -> int:
    """Return the hash of topics and their partitions."""
    _forget_changed_topics(env)
    hashes = {}
    for name in names:
        topic = env.topics.named(name)
        hashes[name] = NO_TOPIC if topic is None else _topic_hash(env, topic)
    return group_hash(hashes)


def _forget_changed_topics(env: GroupEnvironment) -> None:
    """Forget all hashes after a change of the topics, so that those of deleted topics go."""
    if env.hashed_version != env.topics.version:
        env.hashed_version = env.topics.version
        env.topic_hashes.clear()


def _topic_hash(env: GroupEnvironment, topic: TopicInfo) -> int:
    """Return the hash of a topic, which is computed once unless topics change."""
    known = env.topic_hashes
    found = known.get(topic.name)
    if found is None or found[0] is not topic:
        found = known[topic.name] = topic, topic_hash(topic.topic_id, topic.name, topic.racks)
    return found[1]


def update_epoch(group: ConsumerGroup, *, subscriptions_changed: bool) -> bool:
    """Start a new group epoch if subscriptions or topics have changed.

    Return True if so. A resolution of patterns that is due compares the topics itself.
    """
    version = group.env.topics.version
    is_compared = group.topics_version == version or group.is_scheduled("regex")
    if not subscriptions_changed and is_compared:
        return False
    group.topics_version = version
    new_hash = metadata_hash(group)
    if not subscriptions_changed and new_hash == group.metadata_hash:
        return False
    set_epoch(group, group.epoch + 1, new_hash)
    return True


def check_regex(group: ConsumerGroup, pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for a new pattern that RE2J does not accept."""
    if not pattern or pattern in group.members.regexes:
        return
    try:
        compile_regex(pattern)
    except RegexError as error:
        raise GroupRequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


def update_regexes(
    group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, caller: Caller, now: float
) -> RegexChange:
    """Delete a pattern without members, and schedule the resolution of patterns if it is due.

    ``member`` is in the group already.
    """
    change = RegexChange.NONE
    old, new = before.topic_regex, member.topic_regex
    if old != new:
        change = RegexChange.CHANGED
        delete_unused_regexes(group, [old])
        if not new or new in group.regexes:
            change = RegexChange.CHANGED_AND_RESOLVED
    if _needs_resolution(group, now):
        group.can_describe = caller.can_describe
        group.schedule("regex", now, _RESOLUTION_DELAY_MS)
    return change


def delete_unused_regexes(group: ConsumerGroup, patterns: list[str]) -> None:
    """Delete those of the patterns that no member subscribes to any longer."""
    for pattern in dict.fromkeys(patterns):
        if pattern and pattern not in group.members.regexes:
            group.compiled_regexes.pop(pattern, None)
            delete_regex(group, pattern)


def _needs_resolution(group: ConsumerGroup, now: float) -> bool:
    patterns = group.members.regexes
    if not patterns or group.is_scheduled("regex"):
        return False
    resolved = next(iter(group.regexes.values()), None)
    if resolved is None:
        return True
    age_ms = group.env.wall_ms(now) - resolved.timestamp_ms
    if age_ms <= MIN_REFRESH_MS:
        return False
    settings = group.env.group_settings(group.group_id)
    return (
        patterns != group.regexes.keys()
        or resolved.version < group.env.topics.creation_version
        or age_ms > settings.consumer_regex_refresh_interval_ms
    )


def resolve_regexes(group: ConsumerGroup, now: float) -> None:
    """Find the topics of the group's patterns, among those that the client may see.

    If that takes longer, it continues after other work.
    """
    names = list(group.env.topics.names())
    if not _prepare(group, names):
        group.schedule("regex", now, _RESOLUTION_DELAY_MS)
        return
    can_describe, group.can_describe = group.can_describe, None
    topics = group.env.topics
    changed = False
    for pattern in group.members.regexes:
        matching = _matching(group.compiled_regexes[pattern], names)
        matched = frozenset(name for name in matching if can_describe is None or can_describe(name))
        before = group.regexes.get(pattern)
        changed |= matched != (before.topics if before else frozenset())
        set_regex(group, pattern, ResolvedRegex(matched, topics.version, group.env.wall_ms(now)))
    if changed:
        update_epoch(group, subscriptions_changed=True)
    else:
        group.topics_version = -1
        update_epoch(group, subscriptions_changed=False)


def _prepare(group: ConsumerGroup, names: Collection[str]) -> bool:
    """Match names with all patterns for a short time; return True if all results are known."""
    work, compiled = Work(), group.compiled_regexes
    for pattern in group.members.regexes:
        if pattern not in compiled:
            if work.left <= 0:
                return False
            compiled[pattern] = _compiled(pattern)
            work.left -= len(pattern)
        regex = compiled[pattern]
        if regex is not None and not regex.prepare(names, work):
            return False
    return True


def _compiled(pattern: str) -> Regex | None:
    """Return a compiled pattern, None for one that the regex parser refuses.

    Another broker may have stored it.
    """
    try:
        return compile_regex(pattern)
    except RegexError:
        return None


def _matching(regex: Regex | None, names: Iterable[str]) -> list[str]:
    """Return the names that match. A pattern that was refused matches nothing."""
    return [] if regex is None else [name for name in names if regex.matches(name)]
