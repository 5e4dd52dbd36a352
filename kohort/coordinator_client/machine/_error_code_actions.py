"""The table of actions for the error codes of the coordinator.

The action for a heartbeat or a commit becomes a signal in ``_signals``. The reaction to the
signal is in ``_reactions``.
"""

from __future__ import annotations

from enum import Enum

from kohort.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    broker_error,
    error_class,
    error_name,
)
from kohort.errors import ErrorCode as E
from kohort.protocol import ApiKey
from kohort.types import escaped


class CoordinatorAction(Enum):
    """The action that follows from an error code."""

    PROCEED = "proceed"
    """Continue: there is no error, or it does not matter for this API."""
    RETRY = "retry"
    """Repeat the request after a pause."""
    REDISCOVER = "rediscover"
    """Look the coordinator up and repeat the request there."""
    TAKE_MEMBER_ID = "take the member id"
    """Repeat the request with the member id of the response (KIP-394)."""
    REJOIN = "rejoin"
    """Join the rebalance. The membership is still valid."""
    LOSE_GENERATION = "lose the generation"
    """Rejoin with the same member id. The group has a generation without this member."""
    LOSE_MEMBER = "lose the membership"
    """Rejoin with a new member id. The coordinator has removed this member."""
    FENCED = "fenced"
    """Report an error and stay out: another consumer uses this group_instance_id.

    Only a new subscription rejoins.
    """
    REPORT = "report"
    """Report an error to the caller once, and go on. The membership is still valid."""
    FAIL = "fail"
    """Report an error to the caller. The next poll() retries."""


_ALL_APIS: dict[int, CoordinatorAction] = {
    E.NONE: CoordinatorAction.PROCEED,
    E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorAction.RETRY,
    E.COORDINATOR_NOT_AVAILABLE: CoordinatorAction.REDISCOVER,
    E.NOT_COORDINATOR: CoordinatorAction.REDISCOVER,
    E.REQUEST_TIMED_OUT: CoordinatorAction.REDISCOVER,
    E.GROUP_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
    E.INVALID_GROUP_ID: CoordinatorAction.FAIL,
}
"""Error codes of every API of the coordinator."""

_MEMBER_APIS: dict[int, CoordinatorAction] = {
    **_ALL_APIS,
    E.REBALANCE_IN_PROGRESS: CoordinatorAction.REJOIN,
    E.ILLEGAL_GENERATION: CoordinatorAction.LOSE_GENERATION,
    E.UNKNOWN_MEMBER_ID: CoordinatorAction.LOSE_MEMBER,
    E.FENCED_INSTANCE_ID: CoordinatorAction.FENCED,
}
"""Error codes of every API that names a member."""

ACTIONS: dict[ApiKey, dict[int, CoordinatorAction]] = {
    ApiKey.JOIN_GROUP: {
        **_MEMBER_APIS,
        E.MEMBER_ID_REQUIRED: CoordinatorAction.TAKE_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS: CoordinatorAction.RETRY,
        E.INCONSISTENT_GROUP_PROTOCOL: CoordinatorAction.FAIL,
        E.INVALID_SESSION_TIMEOUT: CoordinatorAction.FAIL,
        E.GROUP_MAX_SIZE_REACHED: CoordinatorAction.FAIL,
        E.UNSUPPORTED_VERSION: CoordinatorAction.FAIL,
    },
    ApiKey.SYNC_GROUP: {
        **_MEMBER_APIS,
        E.INCONSISTENT_GROUP_PROTOCOL: CoordinatorAction.FAIL,
    },
    ApiKey.HEARTBEAT: _MEMBER_APIS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        **_ALL_APIS,
        E.UNKNOWN_MEMBER_ID: CoordinatorAction.LOSE_MEMBER,
        E.FENCED_MEMBER_EPOCH: CoordinatorAction.LOSE_MEMBER,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.LOSE_MEMBER,
        E.FENCED_INSTANCE_ID: CoordinatorAction.FENCED,
        E.UNRELEASED_INSTANCE_ID: CoordinatorAction.FENCED,
        E.TOPIC_AUTHORIZATION_FAILED: CoordinatorAction.REPORT,
        E.INVALID_REQUEST: CoordinatorAction.FAIL,
        E.UNSUPPORTED_VERSION: CoordinatorAction.FAIL,
        E.GROUP_MAX_SIZE_REACHED: CoordinatorAction.FAIL,
        E.UNSUPPORTED_ASSIGNOR: CoordinatorAction.FAIL,
        E.INVALID_REGULAR_EXPRESSION: CoordinatorAction.FAIL,
    },
    ApiKey.SHARE_GROUP_HEARTBEAT: {
        **_ALL_APIS,
        E.UNKNOWN_MEMBER_ID: CoordinatorAction.LOSE_MEMBER,
        E.FENCED_MEMBER_EPOCH: CoordinatorAction.LOSE_MEMBER,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.LOSE_MEMBER,
        E.TOPIC_AUTHORIZATION_FAILED: CoordinatorAction.REPORT,
        E.INVALID_REQUEST: CoordinatorAction.FAIL,
        E.UNSUPPORTED_VERSION: CoordinatorAction.FAIL,
        E.GROUP_MAX_SIZE_REACHED: CoordinatorAction.FAIL,
    },
    ApiKey.LEAVE_GROUP: {
        **_ALL_APIS,
        E.UNKNOWN_MEMBER_ID: CoordinatorAction.PROCEED,
        E.ILLEGAL_GENERATION: CoordinatorAction.PROCEED,
        E.FENCED_INSTANCE_ID: CoordinatorAction.PROCEED,
        E.REBALANCE_IN_PROGRESS: CoordinatorAction.RETRY,
    },
    ApiKey.OFFSET_COMMIT: {
        **_MEMBER_APIS,
        E.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorAction.RETRY,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.LOSE_MEMBER,
        E.STALE_MEMBER_EPOCH: CoordinatorAction.LOSE_GENERATION,
        E.TOPIC_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
        E.OFFSET_METADATA_TOO_LARGE: CoordinatorAction.FAIL,
        E.INVALID_COMMIT_OFFSET_SIZE: CoordinatorAction.FAIL,
    },
    ApiKey.OFFSET_FETCH: {
        **_ALL_APIS,
        E.UNSTABLE_OFFSET_COMMIT: CoordinatorAction.RETRY,
        E.UNKNOWN_TOPIC_ID: CoordinatorAction.RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorAction.RETRY,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.PROCEED,
        E.TOPIC_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
    },
    ApiKey.DESCRIBE_GROUPS: {
        **_ALL_APIS,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.PROCEED,
    },
    ApiKey.FIND_COORDINATOR: {
        E.NONE: CoordinatorAction.PROCEED,
        E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorAction.RETRY,
        E.COORDINATOR_NOT_AVAILABLE: CoordinatorAction.RETRY,
        E.GROUP_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
        E.INVALID_GROUP_ID: CoordinatorAction.FAIL,
    },
}
"""Actions by API and error code. :func:`action_for` decides for codes that are not listed.

The heartbeat of a consumer group and DescribeGroups first ask RefusalSeries, which repeats two of
the codes for a while. The table has what follows.
"""


def action_for(api: ApiKey, code: int) -> CoordinatorAction:
    """Return the table's action. Without an entry, retry retriable errors and fail on others."""
    action = ACTIONS[api].get(code)
    if action is None:
        action = CoordinatorAction.RETRY if error_class(code).retriable else CoordinatorAction.FAIL
    return action


_HINTS: dict[int, str] = {
    E.INCONSISTENT_GROUP_PROTOCOL: "the members of the group have no assignor in common. Set one "
    "common assignor for all members in partition_assignment_strategy. If the group is a share "
    "group, read it with a ShareConsumer, or choose another group_id",
    E.INVALID_SESSION_TIMEOUT: "session_timeout_ms is outside the broker's limits. Set it between "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    E.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows. Start fewer "
    "members, or raise group.max.size on the broker",
    E.FENCED_INSTANCE_ID: "another consumer has joined the group with the same group_instance_id. "
    "Set a different group_instance_id for each consumer, then subscribe again",
    E.UNRELEASED_INSTANCE_ID: "another consumer is in the group with the same group_instance_id. "
    "Set a different group_instance_id for each consumer. After a crash, the coordinator releases "
    "the id at the end of the broker's session timeout. Then subscribe again",
    E.UNSUPPORTED_ASSIGNOR: "the broker does not have this assignor. Set group_remote_assignor to "
    "one of group.consumer.assignors on the broker, or leave it out",
    E.INVALID_REGULAR_EXPRESSION: "the broker does not accept the pattern of the subscription",
    E.INVALID_GROUP_ID: "the broker does not accept the group_id. Set another group_id",
}


_HINTS_OF_APIS: dict[tuple[ApiKey, int], str] = {
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, E.UNKNOWN_SERVER_ERROR): "the coordinator failed to process "
    "several heartbeats in a row. Look for the cause in the log of the broker, such as an assignor "
    "that raises an exception. A later poll() joins again",
    (ApiKey.SHARE_GROUP_HEARTBEAT, E.UNSUPPORTED_VERSION): "the cluster has no share groups. They "
    "need Kafka 4.2 and the feature share.version at level 1 or higher",
    (ApiKey.SHARE_GROUP_HEARTBEAT, E.GROUP_MAX_SIZE_REACHED): "the group has as many members as "
    "the brokers allow. Start fewer members, or raise group.share.max.size on the brokers",
    (ApiKey.SHARE_GROUP_HEARTBEAT, E.GROUP_ID_NOT_FOUND): "the group is a consumer group. Choose "
    "another group_id for a share consumer",
}
"""Hints for codes whose meaning depends on the API."""

_DESCRIBE_APIS = (ApiKey.DESCRIBE_GROUPS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)
"""APIs that require DESCRIBE on the group. The others require READ."""


def error_for(
    api: ApiKey, code: int, group_id: str, message: str | None = None
) -> BrokerResponseError:
    """Return the error for a code. Its text names the API, the cause and what to do.

    ``message`` is the broker's own text, if the response has one.
    """
    if code == E.GROUP_AUTHORIZATION_FAILED:
        operation = "DESCRIBE" if api in _DESCRIBE_APIS else "READ"
        return GroupAuthorizationFailedError(
            f"{api.name} failed with {error_name(code)}: this client needs {operation} on group "
            f"{group_id!r}",
            group_id=group_id,
            operation=operation,
            advice="Grant READ, which implies DESCRIBE. A later poll() retries",
        )
    plain = broker_error(code)
    hint = _HINTS_OF_APIS.get((api, code)) or _HINTS.get(code)
    said = f" The broker's message is: {escaped(message)}" if message else ""
    if hint:
        return broker_error(
            code,
            f"{api.name} failed with {error_name(code)}: {hint}.{said}"
            if said
            else f"{api.name} failed with {error_name(code)}: {hint}",
        )
    return broker_error(code, f"{api.name} failed: {plain}{said}")
