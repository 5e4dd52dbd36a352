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


class Action(Enum):
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


_COORDINATOR: dict[int, Action] = {
    E.NONE: Action.PROCEED,
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    E.COORDINATOR_NOT_AVAILABLE: Action.REDISCOVER,
    E.NOT_COORDINATOR: Action.REDISCOVER,
    E.REQUEST_TIMED_OUT: Action.REDISCOVER,
    E.GROUP_AUTHORIZATION_FAILED: Action.FAIL,
    E.INVALID_GROUP_ID: Action.FAIL,
}
"""What every API of the coordinator may answer."""

_MEMBER: dict[int, Action] = {
    **_COORDINATOR,
    E.REBALANCE_IN_PROGRESS: Action.REJOIN,
    E.ILLEGAL_GENERATION: Action.LOSE_GENERATION,
    E.UNKNOWN_MEMBER_ID: Action.LOSE_MEMBER,
    E.FENCED_INSTANCE_ID: Action.FENCED,
}
"""What every API that names a member may answer."""

TABLE: dict[ApiKey, dict[int, Action]] = {
    ApiKey.JOIN_GROUP: {
        **_MEMBER,
        E.MEMBER_ID_REQUIRED: Action.TAKE_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS: Action.RETRY,
        E.INCONSISTENT_GROUP_PROTOCOL: Action.FAIL,
        E.INVALID_SESSION_TIMEOUT: Action.FAIL,
        E.GROUP_MAX_SIZE_REACHED: Action.FAIL,
        E.UNSUPPORTED_VERSION: Action.FAIL,
    },
    ApiKey.SYNC_GROUP: {
        **_MEMBER,
        E.INCONSISTENT_GROUP_PROTOCOL: Action.FAIL,
    },
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: {
        **_COORDINATOR,
        E.UNKNOWN_MEMBER_ID: Action.PROCEED,
        E.ILLEGAL_GENERATION: Action.PROCEED,
        E.FENCED_INSTANCE_ID: Action.PROCEED,
        E.REBALANCE_IN_PROGRESS: Action.RETRY,
    },
    ApiKey.OFFSET_COMMIT: {
        **_MEMBER,
        E.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
        E.GROUP_ID_NOT_FOUND: Action.LOSE_MEMBER,
        E.STALE_MEMBER_EPOCH: Action.LOSE_GENERATION,
        E.TOPIC_AUTHORIZATION_FAILED: Action.FAIL,
        E.OFFSET_METADATA_TOO_LARGE: Action.FAIL,
        E.INVALID_COMMIT_OFFSET_SIZE: Action.FAIL,
    },
    ApiKey.OFFSET_FETCH: {
        **_COORDINATOR,
        E.UNSTABLE_OFFSET_COMMIT: Action.RETRY,
        E.UNKNOWN_TOPIC_ID: Action.RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: Action.PROCEED,
        E.GROUP_ID_NOT_FOUND: Action.PROCEED,
        E.TOPIC_AUTHORIZATION_FAILED: Action.FAIL,
    },
    ApiKey.FIND_COORDINATOR: {
        E.NONE: Action.PROCEED,
        E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
        E.COORDINATOR_NOT_AVAILABLE: Action.RETRY,
        E.GROUP_AUTHORIZATION_FAILED: Action.FAIL,
        E.INVALID_GROUP_ID: Action.FAIL,
    },
}
"""API -> error code -> action. For a code that is not listed, :func:`action_for` decides."""


def action_for(api: ApiKey, code: int) -> Action:
    """The table's action; else RETRY where the error is retriable by nature, and FAIL."""
    action = TABLE[api].get(code)
    if action is None:
        action = Action.RETRY if error_class(code).retriable else Action.FAIL
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


_DESCRIBING = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)
"""APIs that need DESCRIBE on the group; the others need READ."""


def failure(api: ApiKey, code: int, group_id: str) -> BrokerResponseError:
    """The error to report for a code, saying what was asked and what to do."""
    if code == E.GROUP_AUTHORIZATION_FAILED:
        operation = "DESCRIBE" if api in _DESCRIBING else "READ"
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
