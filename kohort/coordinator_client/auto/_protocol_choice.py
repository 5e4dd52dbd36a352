"""The rules of ``group_protocol="auto"``, without I/O.

The choice is made before a join, and never changes while the consumer is a member. In order:

1. An option that only the classic protocol has keeps the consumer on it.
2. Brokers without the consumer protocol, or with it disabled, leave the classic one.
3. A group that has classic members is joined by the classic protocol. ``auto`` never converts it.
4. Otherwise the consumer protocol is used, unless the coordinator refuses the join.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.config import GroupConfig
from kohort.coordinator_client.machine._events import Choice
from kohort.errors import ErrorCode, UnsupportedVersionError, error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import ApiVersionsResponse, DescribeGroupsResponse

CLASSIC, CONSUMER, AUTO = "classic", "consumer", "auto"
GROUP_VERSION = "group.version"
"""The feature of a cluster that enables the consumer protocol, from level 1 on."""
_ENABLED_FROM = 1
_FIRST_FINAL = 1
"""The first version of ConsumerGroupHeartbeat after the early access of Apache Kafka 3.7 to 3.9."""
_NOT_CLASSIC = frozenset({"Empty", "Dead", ""})
"""States of a group without classic members. Groups of the consumer protocol are shown as Dead."""
REFUSED_JOINS = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Error codes of a join that leave the classic protocol.

A coordinator refuses the whole join if DESCRIBE is missing on one topic. A classic member reads the
other topics.
"""


def choose_by_options(config: GroupConfig) -> Choice | None:
    """Return the choice that the options make, or None if the cluster decides."""
    if config.group_protocol != AUTO:
        return Choice(config.group_protocol, "the option group_protocol says so")
    if names := config.classic_only_options:
        verb = "is" if len(names) == 1 else "are"
        reason = f"{' and '.join(names)} {verb} set, which only the classic protocol has"
        return Choice(CLASSIC, reason)
    return None


def choose_by_versions(response: ApiVersionsResponse) -> Choice | None:
    """Return the classic protocol if the coordinator cannot serve the other, else None."""
    served = {each.api_key: each.max_version for each in response.api_keys}
    highest = served.get(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    if highest is None:
        return Choice(CLASSIC, "the coordinator does not serve the consumer protocol")
    if highest < _FIRST_FINAL:
        return Choice(CLASSIC, "the coordinator has only an early version of the consumer protocol")
    if ApiKey.DESCRIBE_GROUPS not in served:
        return Choice(CLASSIC, "the coordinator does not serve DescribeGroups")
    if _level(response.finalized_features) < _ENABLED_FROM:
        return Choice(
            CLASSIC,
            f"the consumer protocol is not enabled in the cluster (feature {GROUP_VERSION})",
        )
    return None


def _level(features: Iterable[ApiVersionsResponse.FinalizedFeatureKey]) -> int:
    levels = (each.max_version_level for each in features if each.name == GROUP_VERSION)
    return max(levels, default=0)


def choose_by_group(group: DescribeGroupsResponse.DescribedGroup) -> Choice:
    """Return the choice for a group that DescribeGroups describes."""
    if group.error_code == ErrorCode.NONE and group.group_state not in _NOT_CLASSIC:
        return Choice(
            CLASSIC,
            f"the group has members of the classic protocol (state {group.group_state})",
        )
    return Choice(CONSUMER, "the cluster has it enabled and the group has no classic members")


def choose_by_failed_description(code: int) -> Choice:
    """Return the classic protocol, which never converts a group, if the group is unknown."""
    return Choice(CLASSIC, f"DescribeGroups failed with {error_name(code)}")


def choose_by_refusal(code: int, message: str | None) -> Choice | None:
    """Return the classic protocol if a join with this error code leaves only that."""
    if code not in REFUSED_JOINS:
        return None
    detail = f" ({message})" if message else ""
    return Choice(CLASSIC, f"the coordinator refused the join with {error_name(code)}{detail}")


def pattern_error(group_id: str, reason: str) -> UnsupportedVersionError:
    """Return the error for a SubscriptionPattern in a group that takes the classic protocol."""
    return UnsupportedVersionError(
        f"a SubscriptionPattern needs the consumer protocol, which group {group_id!r} does not "
        f"take: {reason}. Use topics or a compiled pattern"
    )
