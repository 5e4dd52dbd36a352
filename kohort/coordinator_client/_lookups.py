"""Questions to the cluster for a group: its protocol, its assignment, and names of topic ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import anyio

from kohort.coordinator_client._cluster_view import GroupCluster
from kohort.coordinator_client._coordinator import CoordinatorConnection, R, RequestForm
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.coordinator_client.auto._protocol_choice import (
    choose_by_failed_description,
    choose_by_group,
    choose_by_versions,
)
from kohort.coordinator_client.classic._embedded_protocol import PROTOCOL_TYPE, read_assignment
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import Choice
from kohort.coordinator_client.machine._refusal_series import RefusalSeries
from kohort.errors import (
    ErrorCode,
    GroupError,
    KafkaError,
    MessageDecodeError,
    UnsupportedVersionError,
    broker_error,
    error_name,
)
from kohort.logs import get_logger
from kohort.protocol import ApiKey, Request, Response
from kohort.protocol.messages import (
    ApiVersionsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    MetadataRequest,
)
from kohort.transport import start_soon, versions_request

_LOOKUP_PURPOSE = ""
"""The connection of the look-ups, which the first contact may have opened."""


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

        Both requests are sent at once, which saves a round trip. The description of the group only
        counts if the versions leave the choice open. Otherwise nothing waits for it.

        Raise a retriable error if the coordinator has no answer for now. Raise
        GroupAuthorizationFailedError without DESCRIBE on the group. A broker that refuses the
        look-up for another reason leaves the classic protocol.
        """
        describe = DescribeGroupsRequest(groups=[self._group_id])
        outcomes: dict[type[Response], Response | KafkaError] = {}
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, self._send, describe, outcomes)
            await self._send(versions_request(), outcomes)
            if _has_decided(outcomes[ApiVersionsResponse]):
                tasks.cancel_scope.cancel()
        versions = self._response(ApiVersionsResponse, outcomes)
        self._raise_if_retried("ApiVersions", versions.error_code)
        if versions.error_code:
            raise broker_error(versions.error_code)
        choice = choose_by_versions(versions)
        if choice is not None:
            return choice
        described = self._response(DescribeGroupsResponse, outcomes)
        for group in described.groups:
            if group.group_id == self._group_id:
                self._raise_if_retried("DescribeGroups", group.error_code)
                self._refusals.end()
                failed = _check(self._coordinator, group.error_code, self._group_id)
                return failed or choose_by_group(group)
        raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _send(
        self, message: Request[R], outcomes: dict[type[Response], Response | KafkaError]
    ) -> None:
        """Add the response to a request, or the error in its place."""
        try:
            outcome: Response | KafkaError = await self._coordinator.request(
                [RequestForm(message)], timeout=self._timeout, purpose=_LOOKUP_PURPOSE
            )
        except KafkaError as error:
            outcome = error.with_traceback(None)  # it refers to this frame, a reference cycle
        outcomes[type(message).response] = outcome

    def _response(self, kind: type[R], outcomes: dict[type[Response], Response | KafkaError]) -> R:
        """Return the response of this type, or raise the error in its place."""
        outcome = outcomes.pop(kind)
        if isinstance(outcome, KafkaError):
            self._refusals.end()
            try:
                raise outcome
            finally:
                del outcome  # see _send()
        assert isinstance(outcome, kind)
        return outcome

    def _raise_if_retried(self, api: str, code: int) -> None:
        """Raise a retriable error if the broker failed, because the next attempt may succeed."""
        if code != ErrorCode.UNKNOWN_SERVER_ERROR:
            return
        if self._refusals.allows_retry(code, anyio.current_time()):
            raise GroupError(f"{api} failed with {error_name(code)}. The consumer retries")
        self._refusals.end()


def _has_decided(outcome: Response | KafkaError) -> bool:
    """True if the response to ApiVersions leaves no choice."""
    if not isinstance(outcome, ApiVersionsResponse) or outcome.error_code:
        return False
    return choose_by_versions(outcome) is not None


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


_STABLE = "Stable"


def described_assignment(
    response: DescribeGroupsResponse, topics: frozenset[str]
) -> ClusterTopics | None:
    """Return which of these topics the members have, with their partitions.

    Return None for a group that is not stable or not of classic consumers, and for an error code.
    A response without the group says nothing, either.
    """
    if not response.groups:
        return None
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for group in response.groups:
        if group.error_code or (group.group_state, group.protocol_type) != (_STABLE, PROTOCOL_TYPE):
            return None
        for member in group.members:
            try:
                assignment = read_assignment(member.member_assignment)
            except MessageDecodeError:
                return None
            for topic, number in assignment.partitions:
                if topic not in topics:
                    continue
                numbers[topic].add(number)
    return ClusterTopics({topic: len(each) for topic, each in numbers.items()})


logger = get_logger(__name__)

BY_ID_VERSION = 12
"""First version of a Metadata request with topic ids that brokers respond to (KIP-516)."""


async def names_of_ids(cluster: GroupCluster, ids: Collection[bytes]) -> dict[bytes, str]:
    """Return the names of topics by id. Unknown topics have no entry.

    Request the metadata of topics that the known metadata does not have.
    """
    names = _known_names(cluster, ids)
    missing = [topic_id for topic_id in sorted(ids) if topic_id not in names]
    if not missing:
        return names
    cluster.request_refresh()
    try:
        response = await cluster.request(
            MetadataRequest(
                topics=[
                    MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)
                    for topic_id in missing
                ],
                allow_auto_topic_creation=False,
            ),
            min_version=BY_ID_VERSION,
        )
    except UnsupportedVersionError:
        return names  # the refresh finds topics of the subscription
    found = {
        bytes(topic.topic_id): topic.name
        for topic in response.topics
        if topic.name and not topic.error_code
    }
    if found:
        await cluster.fetch_topics(frozenset(found.values()))  # for their leaders
    return names | found


def _known_names(cluster: GroupCluster, ids: Collection[bytes]) -> dict[bytes, str]:
    by_id = cluster.metadata.topic_names
    return {topic_id: by_id[topic_id] for topic_id in ids if topic_id in by_id}
