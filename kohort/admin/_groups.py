"""The requests for groups: their list, their description and their deletion.

Each type of group has its own API. A description requests ConsumerGroupDescribe first, then
DescribeGroups if that does not know the group, and ShareGroupDescribe at last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from kohort.admin._requests import AdminRequests, group_error
from kohort.admin._results import (
    AdminResults,
    GroupDescription,
    GroupListing,
    GroupListings,
    MemberDescription,
)
from kohort.coordinator_client import (
    PROTOCOL_TYPE,
    CoordinatorConnection,
    RequestForm,
    read_assignment,
    read_subscription,
)
from kohort.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    KafkaError,
    MessageDecodeError,
    UnsupportedVersionError,
    broker_error,
)
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kohort.transport import start_soon
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

D = TypeVar(
    "D",
    ConsumerGroupDescribeResponse.DescribedGroup,
    DescribeGroupsResponse.DescribedGroup,
    ShareGroupDescribeResponse.DescribedGroup,
)

_CLASSIC, _CONSUMER, SHARE = "classic", "consumer", "share"
_STATES_SINCE = 4
"""The first version of ListGroups with states. Version 5 has types."""
_DEAD = "Dead"
_STREAMS = "a streams group"


async def list_groups(
    engine: Engine, states: frozenset[str] | None, types: frozenset[str] | None, seconds: float
) -> GroupListings:
    """Request the groups of each broker. The filters have lower case."""
    requests = await AdminRequests.begin(engine, seconds)
    nodes = sorted(requests.cluster.metadata.brokers)

    async def attempt(
        remaining: Sequence[int],
    ) -> Mapping[int, list[GroupListing] | KafkaError]:
        found: dict[int, list[GroupListing] | KafkaError] = {}

        async def one(node: int) -> None:
            try:
                found[node] = await groups_of(requests, node, needs_states=states is not None)
            except KafkaError as error:
                found[node] = error

        async with anyio.create_task_group() as tasks:
            for node in remaining:
                start_soon(tasks, one, node)
        return found

    results = await requests.each(nodes, attempt, "the list of groups")
    return GroupListings(
        sorted(
            group
            for groups in results.values()
            for group in groups
            if states is None or group.state.lower() in states
            if types is None or group.type in types
        ),
        results.errors,
    )


async def groups_of(
    requests: AdminRequests, node: int, *, needs_states: bool = False
) -> list[GroupListing]:
    """Return the groups of one broker."""
    response = await requests.cluster.request(
        ListGroupsRequest(),
        node=node,
        timeout_ms=requests.milliseconds,
        min_version=_STATES_SINCE if needs_states else None,
    )
    if response.error_code:
        raise broker_error(response.error_code)
    return [
        GroupListing(
            each.group_id,
            each.group_type.lower() or _CLASSIC,
            each.group_state,
            each.protocol_type,
            node,
        )
        for each in response.groups
    ]


# -- descriptions -----------------------------------------------------------------------------


async def describe_groups(
    engine: Engine, group_ids: list[str], seconds: float
) -> AdminResults[str, GroupDescription]:
    requests = await AdminRequests.begin(engine, seconds)
    return await requests.groups(group_ids, partial(describe_group, requests))


async def describe_group(requests: AdminRequests, group_id: str) -> GroupDescription:
    """Return the description of a group. Raise GroupIdNotFoundError if there is no such group."""
    describe = partial(_describe, requests, group_id)
    return await requests.group(group_id, describe, "the description", "DESCRIBE")


async def _describe(
    requests: AdminRequests, group_id: str, coordinator: CoordinatorConnection
) -> GroupDescription:
    try:
        return await _describe_consumer(requests, group_id, coordinator)
    except (UnsupportedVersionError, GroupIdNotFoundError):
        pass
    try:
        return await _describe_classic(requests, group_id, coordinator)
    except GroupIdNotFoundError as not_found:
        try:
            return await _describe_share(requests, group_id, coordinator)
        except UnsupportedVersionError:
            raise not_found from None


async def _describe_consumer(
    requests: AdminRequests, group_id: str, coordinator: CoordinatorConnection
) -> GroupDescription:
    response = await coordinator.request(
        [RequestForm(ConsumerGroupDescribeRequest(group_ids=[group_id]))],
        timeout=requests.milliseconds / 1000,
    )
    group = _found(group_id, response.groups)
    members = [_consumer_member(each) for each in group.members]
    return _with_epochs(_CONSUMER, PROTOCOL_TYPE, group, members, coordinator)


async def _describe_share(
    requests: AdminRequests, group_id: str, coordinator: CoordinatorConnection
) -> GroupDescription:
    response = await coordinator.request(
        [RequestForm(ShareGroupDescribeRequest(group_ids=[group_id]))],
        timeout=requests.milliseconds / 1000,
    )
    group = _found(group_id, response.groups)
    members = [_share_member(each) for each in group.members]
    return _with_epochs(SHARE, SHARE, group, members, coordinator)


def _found(group_id: str, groups: Sequence[D]) -> D:
    """Return the group of a description. Raise its error."""
    group = next((each for each in groups if each.group_id == group_id), None)
    if group is None or group.error_code:
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.error_code
        message = None if group is None else group.error_message
        raise group_error("the description", group_id, code, "DESCRIBE", message, _STREAMS)
    return group


def _with_epochs(
    type_name: str,
    protocol_type: str,
    group: ConsumerGroupDescribeResponse.DescribedGroup | ShareGroupDescribeResponse.DescribedGroup,
    members: Iterable[MemberDescription],
    coordinator: CoordinatorConnection,
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        type_name,
        group.group_state,
        protocol_type,
        group.assignor_name,
        _node(coordinator),
        tuple(sorted(members)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _share_member(member: ShareGroupDescribeResponse.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        None,
        member.client_id,
        member.client_host.lstrip("/"),
        _partitions(member.assignment),
        topics=tuple(sorted(member.subscribed_topic_names)),
        epoch=member.member_epoch,
        rack=member.rack_id,
    )


def _consumer_member(member: ConsumerGroupDescribeResponse.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        member.member_epoch,
        member.rack_id,
    )


def _partitions(
    assignment: ConsumerGroupDescribeResponse.Assignment | ShareGroupDescribeResponse.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


async def _describe_classic(
    requests: AdminRequests, group_id: str, coordinator: CoordinatorConnection
) -> GroupDescription:
    response = await coordinator.request(
        [RequestForm(DescribeGroupsRequest(groups=[group_id]))],
        timeout=requests.milliseconds / 1000,
    )
    group = _found(group_id, response.groups)
    if group.group_state == _DEAD:
        # Before version 6 an unknown group has this state.
        code = ErrorCode.GROUP_ID_NOT_FOUND
        raise group_error("the description", group_id, code, "DESCRIBE", others=_STREAMS)
    is_consumers = group.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id,
        _CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        _node(coordinator),
        tuple(sorted(_classic_member(each, is_consumers) for each in group.members)),
    )


def _classic_member(
    member: DescribeGroupsResponse.DescribedGroupMember, is_consumers: bool
) -> MemberDescription:
    """Return a member. Bytes of another protocol, or that do not decode, have no partitions."""
    partitions: Collection[TopicPartition] = ()
    topics: Iterable[str] = ()
    if is_consumers:
        try:
            partitions = read_assignment(member.member_assignment).partitions
            if len(member.member_metadata):
                topics = read_subscription(member.member_metadata).topics
        except MessageDecodeError:
            pass
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        tuple(sorted(partitions)),
        topics=tuple(sorted(topics)),
    )


def _node(coordinator: CoordinatorConnection) -> int:
    return -1 if coordinator.node is None else coordinator.node


# -- deletion ---------------------------------------------------------------------------------


async def delete_groups(
    engine: Engine, group_ids: list[str], seconds: float
) -> AdminResults[str, None]:
    requests = await AdminRequests.begin(engine, seconds)

    async def delete(group_id: str, coordinator: CoordinatorConnection) -> None:
        response = await coordinator.request(
            [RequestForm(DeleteGroupsRequest(groups_names=[group_id]))],
            timeout=requests.milliseconds / 1000,
        )
        found = {each.group_id: each for each in response.results}.get(group_id)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if found is None else found.error_code
        if code:
            message = None if found is None else found.error_message
            raise group_error("the deletion", group_id, code, "DELETE", message, _STREAMS)

    async def one(group_id: str) -> None:
        await requests.group(group_id, partial(delete, group_id), "the deletion", "DELETE")

    return await requests.groups(group_ids, one)
