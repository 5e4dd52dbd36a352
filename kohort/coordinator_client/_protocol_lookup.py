"""The look-up of what decides the group protocol: ApiVersions and DescribeGroups."""

from __future__ import annotations

import anyio

from kohort.coordinator_client._coordinator import CoordinatorConnection, R, RequestForm
from kohort.coordinator_client._error_code_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._protocol_choice import (
    Choice,
    choose_by_failed_description,
    choose_by_group,
    choose_by_versions,
)
from kohort.coordinator_client._refusal_series import RefusalSeries
from kohort.errors import ErrorCode, GroupError, KafkaError, broker_error, error_name
from kohort.protocol import ApiKey, Request
from kohort.protocol.messages import DescribeGroupsRequest
from kohort.transport import versions_request


class ProtocolLookup:
    """The look-ups of one group's protocol. ``timeout`` limits each request, in seconds.

    UNKNOWN_SERVER_ERROR is retried as in heartbeats: several times in a row, for at most
    ``session_timeout`` seconds.
    """

    def __init__(
        self,
        coordinator: CoordinatorConnection,
        group_id: str,
        timeout: float,
        session_timeout: float,
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._timeout = timeout
        self._refusals = RefusalSeries(session_timeout)

    async def look_up(self) -> Choice:
        """Request from the coordinator what decides the group's protocol, and return the choice.

        Raise a retriable error if the coordinator has no answer for now. Raise
        GroupAuthorizationFailedError without DESCRIBE on the group. A broker that refuses the
        look-up for another reason leaves the classic protocol.
        """
        versions = await self._send(versions_request())
        self._raise_if_retried("ApiVersions", versions.error_code)
        if versions.error_code:
            raise broker_error(versions.error_code)
        choice = choose_by_versions(versions)
        if choice is not None:
            return choice
        described = await self._send(DescribeGroupsRequest(groups=[self._group_id]))
        for group in described.groups:
            if group.group_id == self._group_id:
                self._raise_if_retried("DescribeGroups", group.error_code)
                self._refusals.end()
                failed = _check(self._coordinator, group.error_code, self._group_id)
                return failed or choose_by_group(group)
        raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _send(self, message: Request[R]) -> R:
        try:
            return await self._coordinator.request([RequestForm(message)], timeout=self._timeout)
        except KafkaError:
            self._refusals.end()
            raise

    def _raise_if_retried(self, api: str, code: int) -> None:
        """Raise a retriable error if the broker failed, because the next attempt may succeed."""
        if code != ErrorCode.UNKNOWN_SERVER_ERROR:
            return
        if self._refusals.allows_retry(code, anyio.current_time()):
            raise GroupError(f"{api} failed with {error_name(code)}. The consumer retries")
        self._refusals.end()


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
