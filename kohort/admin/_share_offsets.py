"""The requests for the start offsets of share groups.

The brokers accept any offset, and a partition that does not exist delays their response for half a
minute. So both are checked before a request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kohort.admin._groups import SHARE, groups_of
from kohort.admin._offsets import GroupSpecs, changed, each_in_group, log_bounds, partition_error
from kohort.admin._requests import AdminRequests, group_error
from kohort.admin._results import AdminResults, GroupListing, ShareOffset
from kohort.admin._topics import topic_error, topics_by_name
from kohort.coordinator_client import CoordinatorConnection, RequestForm, partitions_by_topic
from kohort.errors import ErrorCode, KafkaError, UnsupportedVersionError, broker_error
from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from kohort.transport import escaped
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

R = TypeVar("R", bound=Response)

ShareOffsets: TypeAlias = AdminResults[TopicPartition, ShareOffset]
_Alter = AlterShareGroupOffsetsRequest
_Delete = DeleteShareGroupOffsetsRequest
_Describe = DescribeShareGroupOffsetsRequest
_NO_START = -1
"""The start of a partition that begins where ``share.auto.offset.reset`` says."""
_READ: Final = "the read of start offsets"
_CHANGE, _DELETION = "the change of start offsets", "the deletion of start offsets"


async def list_share_group_offsets(
    engine: Engine, specs: GroupSpecs, seconds: float
) -> AdminResults[str, ShareOffsets]:
    requests = await AdminRequests.begin(engine, seconds)

    async def one(group_id: str) -> ShareOffsets:
        return await start_offsets(requests, engine, group_id, specs[group_id])

    return await requests.groups(specs, one)


async def start_offsets(
    requests: AdminRequests,
    engine: Engine,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
) -> ShareOffsets:
    """Return the progress of a group in partitions, or in all that it has if None."""
    missing: Mapping[TopicPartition, KafkaError] = {}
    topics = None
    if partitions is not None:
        known = await _known(requests, partitions)
        missing = known.errors
        topics = [
            _Describe.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in partitions_by_topic(sorted(known)).items()
        ]
        if not topics:
            return AdminResults({}, missing)
    group = _Describe.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
    message = _Describe(groups=[group])

    async def read(coordinator: CoordinatorConnection) -> ShareOffsets:
        response = await _request(requests, coordinator, message, _READ, group_id)
        found = next(each for each in response.groups if each.group_id == group_id)
        if found.error_code:
            code, said = found.error_code, found.error_message
            raise _group_error(_READ, group_id, code, "DESCRIBE", said)
        values: dict[TopicPartition, ShareOffset] = {}
        errors = dict(missing)
        for topic in found.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                if each.error_code:
                    errors[tp] = partition_error(
                        "the read of its start offset", tp, each.error_code, "DESCRIBE"
                    )
                    continue
                start = None if each.start_offset == _NO_START else each.start_offset
                lag = None if start is None or each.lag == -1 else each.lag
                values[tp] = ShareOffset(start, lag, each.leader_epoch)
        return AdminResults(dict(sorted(values.items())), errors)

    return await requests.group(group_id, read, _READ, "DESCRIBE")


async def alter_share_group_offsets(
    engine: Engine, group_id: str, starts: Mapping[TopicPartition, int | None], seconds: float
) -> AdminResults[TopicPartition, None]:
    requests = await AdminRequests.begin(engine, seconds)
    checked = await check_starts(requests, engine, starts)
    results = await send_starts(requests, group_id, {tp: starts[tp] for tp in checked})
    return AdminResults(results, {**checked.errors, **results.errors})


async def check_starts(
    requests: AdminRequests, engine: Engine, starts: Mapping[TopicPartition, int | None]
) -> AdminResults[TopicPartition, None]:
    """Check that partitions exist and that their logs have the offsets."""
    first, end = await log_bounds(requests, engine, list(starts))
    errors = {**first.errors, **end.errors}
    for tp, start in starts.items():
        if tp in errors or start is None:
            continue
        low, high = first[tp], end[tp]
        assert low is not None and high is not None  # a log has both ends
        if not low.offset <= start <= high.offset:
            errors[tp] = broker_error(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{_CHANGE} failed for {escaped(tp.topic)}-{tp.partition}: {start} is not between "
                f"the first offset {low.offset} and the end {high.offset} of the log",
            )
    return AdminResults(dict.fromkeys(tp for tp in starts if tp not in errors), errors)


async def send_starts(
    requests: AdminRequests, group_id: str, starts: Mapping[TopicPartition, int | None]
) -> AdminResults[TopicPartition, None]:
    """Set checked start offsets, which the coordinator refuses if the group has members."""

    async def alter(
        remaining: Sequence[TopicPartition], coordinator: CoordinatorConnection
    ) -> dict[TopicPartition, KafkaError | None]:
        topics = []
        for name, numbers in partitions_by_topic(sorted(remaining)).items():
            values = [(number, starts[TopicPartition(name, number)]) for number in numbers]
            entries = [
                _Alter.AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=_NO_START if start is None else start
                )
                for number, start in values
            ]
            topics.append(
                _Alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=entries)
            )
        message = _Alter(group_id=group_id, topics=topics)
        response = await _request(requests, coordinator, message, _CHANGE, group_id)
        if code := response.error_code:
            if code == ErrorCode.GROUP_ID_NOT_FOUND:  # a new group would have been created
                await _check_kind(requests, group_id, coordinator)
            raise _group_error(_CHANGE, group_id, code, "READ", response.error_message)
        codes = {
            TopicPartition(topic.topic_name, each.partition_index): each.error_code
            for topic in response.responses
            for each in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return {tp: changed(group_id, _CHANGE, tp, codes.get(tp, missing)) for tp in remaining}

    return await each_in_group(requests, group_id, starts, alter, _CHANGE, "READ")


async def _check_kind(
    requests: AdminRequests, group_id: str, coordinator: CoordinatorConnection
) -> None:
    """Raise an error that names the type of a group, if its coordinator lists another type.

    The list only makes the error clearer, so nothing is raised if the coordinator returns none.
    """
    listed: list[GroupListing] = []
    if coordinator.node is not None:
        with suppress(KafkaError):
            listed = await groups_of(requests, coordinator.node)
    for each in listed:
        if each.group_id == group_id and each.type != SHARE:
            raise other_type_error(group_id, each.type)


def other_type_error(group_id: str, group_type: str) -> KafkaError:
    """Return the error of a change of a share group whose name belongs to another group."""
    return broker_error(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{_CHANGE} failed: group {escaped(group_id)!r} is of the type {group_type}, and a name "
        "belongs to one kind of group. Give the share group another name",
    )


async def delete_share_group_offsets(
    engine: Engine, group_id: str, topics: list[str], seconds: float
) -> AdminResults[str, None]:
    requests = await AdminRequests.begin(engine, seconds)

    async def delete(
        remaining: Sequence[str], coordinator: CoordinatorConnection
    ) -> dict[str, KafkaError | None]:
        named = [_Delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in remaining]
        message = _Delete(group_id=group_id, topics=named)
        response = await _request(requests, coordinator, message, _DELETION, group_id)
        if code := response.error_code:
            raise _group_error(_DELETION, group_id, code, "DELETE", response.error_message)
        what = f"{_DELETION} in group {escaped(group_id)!r}"
        codes = {each.topic_name: each.error_code for each in response.responses}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return {
            name: topic_error(what, name, code, "READ") if code else None
            for name in remaining
            for code in [codes.get(name, missing)]
        }

    return await each_in_group(requests, group_id, topics, delete, _DELETION, "DELETE")


async def _request(
    requests: AdminRequests,
    coordinator: CoordinatorConnection,
    message: Request[R],
    what: str,
    group_id: str,
) -> R:
    """Return the response of a coordinator. Old brokers do not know these requests."""
    try:
        return await coordinator.request(
            [RequestForm(message)], timeout=requests.milliseconds / 1000
        )
    except UnsupportedVersionError as error:
        raise _group_error(what, group_id, error.code, "") from error


def _group_error(
    what: str, group_id: str, code: int, operation: str, message: str | None = None
) -> KafkaError:
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return broker_error(
            code,
            f"{what} failed for group {escaped(group_id)!r}: the cluster has no share groups. They "
            "need Kafka 4.2 and the feature share.version at level 1 or higher",
        )
    return group_error(what, group_id, code, operation, message)


async def _known(
    requests: AdminRequests, partitions: Collection[TopicPartition]
) -> AdminResults[TopicPartition, None]:
    """Return the partitions that exist. The others have an error."""
    topics = await topics_by_name(requests, {tp.topic for tp in partitions})
    errors: dict[TopicPartition, KafkaError] = {}
    for tp in partitions:
        if tp.topic in topics.errors:
            errors[tp] = topics.errors[tp.topic]
        elif all(each.partition != tp.partition for each in topics[tp.topic].partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[tp] = partition_error("the look-up of partitions", tp, code, "DESCRIBE")
    return AdminResults(dict.fromkeys(tp for tp in partitions if tp not in errors), errors)
