"""What the APIs that describe groups of one type have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kohort.broker.apis._registry import Context
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode

D = TypeVar("D")


def describe_all(
    ctx: Context,
    group_ids: Iterable[str],
    described: Callable[..., D],
    describe: Callable[[Context, str], D],
    *,
    with_operations: bool,
    takes_empty_id: bool = False,
) -> list[D]:
    """Describe the groups that the client may see and that this broker coordinates.

    ``described`` makes the entry of each other one, with its error.
    """
    entries: list[Any] = []
    for group_id in group_ids:
        error = _error(ctx, group_id, takes_empty_id)
        if error is ErrorCode.NONE:
            entry: Any = describe(ctx, group_id)
        else:
            entry = described(group_id=group_id, error_code=error)
        if with_operations and entry.error_code == ErrorCode.NONE:
            entry.authorized_operations = ctx.operations(ResourceType.GROUP, group_id)
        entries.append(entry)
    return entries


def _error(ctx: Context, group_id: str, takes_empty_id: bool) -> ErrorCode:
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group_id and not takes_empty_id:
        return ErrorCode.INVALID_GROUP_ID
    return ctx.broker.coordinator.check(group_id)


def not_found(described: Callable[..., D], group_id: str, problem: str) -> D:
    """Return the entry of a group that is unknown or of another type."""
    return described(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {problem}.",
    )


def hidden(
    ctx: Context, described: Callable[..., D], group_id: str, topics: Iterable[str]
) -> D | None:
    """Return the entry of a group with topics that the client may not describe, or None."""
    if all(ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in topics):
        return None
    return described(
        group_id=group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to "
        "describe.",
    )
