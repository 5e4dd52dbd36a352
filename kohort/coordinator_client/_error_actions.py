"""What to do about each error code that the coordinator may answer with."""

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


class CoordinatorAction(Enum):
    """What follows from an answer."""

    PROCEED = "proceed"
    """No error, or one that does not matter here."""
    RETRY = "retry"
    """The same again after a pause."""
    REDISCOVER = "rediscover"
    """The same again at the group's new coordinator."""
    TAKE_MEMBER_ID = "take the member id"
    """The same again with the member id of the answer (KIP-394)."""
    REJOIN = "rejoin"
    """The group rebalances; the membership holds."""
    LOSE_GENERATION = "lose the generation"
    """The group went on without this member; it may come back under its member id."""
    LOSE_MEMBER = "lose the membership"
    """The coordinator does not know this member any more."""
    FENCED = "fenced"
    """Another has taken this place for good: an error, and no way back without the caller."""
    FAIL = "fail"
    """An error for the caller to see; the next poll() tries again."""


_ALL_APIS: dict[int, CoordinatorAction] = {
    E.NONE: CoordinatorAction.PROCEED,
    E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorAction.RETRY,
    E.COORDINATOR_NOT_AVAILABLE: CoordinatorAction.REDISCOVER,
    E.NOT_COORDINATOR: CoordinatorAction.REDISCOVER,
    E.REQUEST_TIMED_OUT: CoordinatorAction.REDISCOVER,
    E.GROUP_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
    E.INVALID_GROUP_ID: CoordinatorAction.FAIL,
}
"""What every API of the coordinator may answer."""

_MEMBER_APIS: dict[int, CoordinatorAction] = {
    **_ALL_APIS,
    E.REBALANCE_IN_PROGRESS: CoordinatorAction.REJOIN,
    E.ILLEGAL_GENERATION: CoordinatorAction.LOSE_GENERATION,
    E.UNKNOWN_MEMBER_ID: CoordinatorAction.LOSE_MEMBER,
    E.FENCED_INSTANCE_ID: CoordinatorAction.FENCED,
}
"""What every API that names a member may answer."""

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
        E.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorAction.PROCEED,
        E.GROUP_ID_NOT_FOUND: CoordinatorAction.PROCEED,
        E.TOPIC_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
    },
    ApiKey.FIND_COORDINATOR: {
        E.NONE: CoordinatorAction.PROCEED,
        E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorAction.RETRY,
        E.COORDINATOR_NOT_AVAILABLE: CoordinatorAction.RETRY,
        E.GROUP_AUTHORIZATION_FAILED: CoordinatorAction.FAIL,
        E.INVALID_GROUP_ID: CoordinatorAction.FAIL,
    },
}
"""API -> error code -> action. For a code that is not listed, :func:`action_for` decides."""


def action_for(api: ApiKey, code: int) -> CoordinatorAction:
    """The table's action; else RETRY where the error is retriable by nature, and FAIL."""
    action = ACTIONS[api].get(code)
    if action is None:
        action = CoordinatorAction.RETRY if error_class(code).retriable else CoordinatorAction.FAIL
    return action


_HINTS: dict[int, str] = {
    E.INCONSISTENT_GROUP_PROTOCOL: "the members of the group share no assignor; give all of them "
    "one in common in partition_assignment_strategy",
    E.INVALID_SESSION_TIMEOUT: "session_timeout_ms is outside what the broker allows "
    "(group.min.session.timeout.ms to group.max.session.timeout.ms)",
    E.GROUP_MAX_SIZE_REACHED: "the group is full (group.max.size of the broker)",
    E.FENCED_INSTANCE_ID: "another consumer has joined the group with this group_instance_id and "
    "taken this one's place; give each consumer its own, then subscribe again",
    E.INVALID_GROUP_ID: "the broker does not accept the group_id",
}


_DESCRIBE_APIS = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)
"""APIs that need DESCRIBE on the group; the others need READ."""


def error_for(api: ApiKey, code: int, group_id: str) -> BrokerResponseError:
    """The error to report for a code, saying what was asked and what to do."""
    if code == E.GROUP_AUTHORIZATION_FAILED:
        operation = "DESCRIBE" if api in _DESCRIBE_APIS else "READ"
        return GroupAuthorizationFailedError(
            f"{api.name}: {error_name(code)}: this client needs {operation} on group "
            f"{group_id!r}. Grant READ, which implies DESCRIBE; a later poll() tries again",
            group_id=group_id,
            operation=operation,
        )
    plain = broker_error(code)
    hint = _HINTS.get(code)
    words = f"{error_name(code)}: {hint}" if hint else str(plain)
    return broker_error(code, f"{api.name}: {words}")
