"""The look-up of what decides the group protocol: ApiVersions and DescribeGroups."""

from __future__ import annotations

from kohort.coordinator_client._coordinator import CoordinatorConnection, R, RequestForm
from kohort.coordinator_client._error_code_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._protocol_choice import (
    Choice,
    choose_by_failed_description,
    choose_by_group,
    choose_by_versions,
)
from kohort.errors import ErrorCode, broker_error, error_name
from kohort.protocol import ApiKey, Request
from kohort.protocol.messages import DescribeGroupsRequest
from kohort.transport import versions_request


async def look_up_protocol(
    coordinator: CoordinatorConnection, group_id: str, timeout: float
) -> Choice:
    """Request from the coordinator what decides the group's protocol, and return the choice.

    ``timeout`` limits each request, in seconds. Raise a retriable error if the coordinator has no
    answer for now. Raise GroupAuthorizationFailedError without DESCRIBE on the group. A broker that
    refuses the look-up for another reason leaves the classic protocol.
    """
    versions = await _send(coordinator, versions_request(), timeout)
    if versions.error_code:
        raise broker_error(versions.error_code)
    choice = choose_by_versions(versions)
    if choice is not None:
        return choice
    described = await _send(coordinator, DescribeGroupsRequest(groups=[group_id]), timeout)
    for group in described.groups:
        if group.group_id == group_id:
            return _check(coordinator, group.error_code, group_id) or choose_by_group(group)
    raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _send(coordinator: CoordinatorConnection, message: Request[R], timeout: float) -> R:
    return await coordinator.request([RequestForm(message)], timeout=timeout)


def _check(coordinator: CoordinatorConnection, code: int, group_id: str) -> Choice | None:
    """Return the classic protocol for an error that lasts, or None if there is no error.

    Raise an error that may end: one that is retriable, or a missing right. GROUP_ID_NOT_FOUND only
    says that the group has no classic members.
    """
    action = action_for(ApiKey.DESCRIBE_GROUPS, code)
    if action is CoordinatorAction.PROCEED:
        return None
    if action is CoordinatorAction.FAIL and code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return choose_by_failed_description(code)
    if action is CoordinatorAction.REDISCOVER:
        coordinator.drop(f"DescribeGroups returned {error_name(code)}")
    raise error_for(ApiKey.DESCRIBE_GROUPS, code, group_id)
