"""The requests for committed offsets of groups, and for offsets of logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kohort.admin._requests import AdminRequests, group_error, note_error, raise_with_operation
from kohort.admin._results import AdminResults
from kohort.coordinator_client import (
    OUTSIDER,
    CoordinatorConnection,
    RequestForm,
    commit_codes,
    commit_forms,
    fetch_forms,
    fetched_offsets,
    partitions_by_topic,
)
from kohort.errors import (
    ErrorCode,
    KafkaError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    broker_error,
    error_name,
)
from kohort.fetcher import EARLIEST, LATEST, Failure, OffsetLookup, OffsetResult
from kohort.protocol.messages import OffsetDeleteRequest
from kohort.transport import escaped
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

K = TypeVar("K")

Committed: TypeAlias = AdminResults[TopicPartition, OffsetAndMetadata]
"""The committed offsets of a group."""
GroupSpecs: TypeAlias = Mapping[str, Collection[TopicPartition] | None]
"""The partitions to read by group. None stands for all that have an offset."""
_LOOK_UP: Final = "the look-up of offsets"
_Change: TypeAlias = Callable[
    [Sequence[K], CoordinatorConnection], Awaitable[dict[K, KafkaError | None]]
]


# -- offsets of groups ------------------------------------------------------------------------


async def list_group_offsets(
    engine: Engine, specs: GroupSpecs, seconds: float
) -> AdminResults[str, Committed]:
    requests = await AdminRequests.begin(engine, seconds)
    return await requests.groups(
        specs, lambda group_id: committed_offsets(requests, group_id, specs[group_id])
    )


async def committed_offsets(
    requests: AdminRequests, group_id: str, partitions: Collection[TopicPartition] | None
) -> Committed:
    """Return the committed offsets of a group. Partitions without an offset are left out."""

    async def read(coordinator: CoordinatorConnection) -> Committed:
        response = await coordinator.request(
            fetch_forms(group_id, OUTSIDER, partitions, None, require_stable=False),
            timeout=requests.milliseconds / 1000,
        )
        code, found = fetched_offsets(response, group_id, partitions, None)
        if code:
            raise group_error("the read of offsets", group_id, code, "DESCRIBE")
        return AdminResults(
            {tp: at for tp, at in found.items() if isinstance(at, OffsetAndMetadata)},
            {
                tp: partition_error("the read of its offset", tp, at, "DESCRIBE")
                for tp, at in found.items()
                if isinstance(at, int)
            },
        )

    return await requests.group(group_id, read, "the read of offsets", "DESCRIBE")


async def alter_group_offsets(
    engine: Engine,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    seconds: float,
) -> AdminResults[TopicPartition, None]:
    requests = await AdminRequests.begin(engine, seconds)
    return await commit_offsets(requests, group_id, offsets)


async def commit_offsets(
    requests: AdminRequests, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> AdminResults[TopicPartition, None]:
    """Commit offsets from outside the group, which its coordinator refuses if it has members."""

    async def commit(
        remaining: Sequence[TopicPartition], coordinator: CoordinatorConnection
    ) -> dict[TopicPartition, KafkaError | None]:
        chosen = {tp: offsets[tp] for tp in remaining}
        response = await coordinator.request(
            commit_forms(group_id, OUTSIDER, None, chosen, None),
            timeout=requests.milliseconds / 1000,
        )
        return {
            tp: changed(group_id, "the commit", tp, code)
            for tp, code in commit_codes(response, chosen, None).items()
        }

    return await each_in_group(requests, group_id, offsets, commit, "the commit", "READ")


async def delete_group_offsets(
    engine: Engine, group_id: str, partitions: list[TopicPartition], seconds: float
) -> AdminResults[TopicPartition, None]:
    requests = await AdminRequests.begin(engine, seconds)
    return await delete_offsets(requests, group_id, partitions)


async def delete_offsets(
    requests: AdminRequests, group_id: str, partitions: Collection[TopicPartition]
) -> AdminResults[TopicPartition, None]:
    """Delete committed offsets of topics that no member of the group subscribes to."""

    async def delete(
        remaining: Sequence[TopicPartition], coordinator: CoordinatorConnection
    ) -> dict[TopicPartition, KafkaError | None]:
        cls = OffsetDeleteRequest
        topics = [
            cls.OffsetDeleteRequestTopic(
                name=name,
                partitions=[cls.OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
            )
            for name, numbers in partitions_by_topic(sorted(remaining)).items()
        ]
        message = cls(group_id=group_id, topics=topics)
        response = await coordinator.request(
            [RequestForm(message)], timeout=requests.milliseconds / 1000
        )
        if response.error_code:
            raise group_error("the deletion of offsets", group_id, response.error_code, "DELETE")
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return {
            tp: changed(group_id, "the deletion", tp, codes.get(tp, missing)) for tp in remaining
        }

    what = "the deletion of offsets"
    return await each_in_group(requests, group_id, partitions, delete, what, "DELETE")


async def each_in_group(
    requests: AdminRequests,
    group_id: str,
    keys: Iterable[K],
    change: _Change[K],
    what: str,
    operation: str,
) -> AdminResults[K, None]:
    """Repeat a change for the partitions or topics without a final result.

    ``operation`` is the right on the group that the change needs.
    """
    coordinator = requests.coordinator(group_id)

    async def attempt(remaining: Sequence[K]) -> Mapping[K, KafkaError | None]:
        try:
            found = await change(remaining, coordinator)
        except KafkaError as error:
            note_error(coordinator, error)
            raise_with_operation(error, what, group_id, operation)
        for each in found.values():
            note_error(coordinator, each)
        return found

    return await requests.each(keys, attempt, f"{what} of group {escaped(group_id)!r}")


def changed(group_id: str, what: str, tp: TopicPartition, code: int) -> KafkaError | None:
    """Return the error of a change of one partition, or None if it succeeded."""
    if not code:
        return None
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_error(what, group_id, code, "READ")
    return partition_error(f"{what} in group {escaped(group_id)!r}", tp, code, "READ")


def partition_error(what: str, tp: TopicPartition, code: int, operation: str) -> KafkaError:
    name = f"{escaped(tp.topic)}-{tp.partition}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationFailedError(
            f"{what} failed for {name} with {error_name(code)}: this client needs {operation} on "
            f"topic {tp.topic!r}. Grant it",
            topics={tp.topic},
            operation=operation,
        )
    return broker_error(code, f"{what} failed for {name}: {broker_error(code)}")


# -- offsets of logs --------------------------------------------------------------------------


async def list_partition_offsets(
    engine: Engine, specs: Mapping[TopicPartition, int], committed: bool, seconds: float
) -> AdminResults[TopicPartition, OffsetAndTimestamp | None]:
    requests = await AdminRequests.begin(engine, seconds)
    return await log_offsets(requests, engine, specs, committed=committed)


async def log_offsets(
    requests: AdminRequests,
    engine: Engine,
    specs: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
) -> AdminResults[TopicPartition, OffsetAndTimestamp | None]:
    """Return an offset for each partition by its timestamp or OffsetSpec, or None without one.

    A partition that does not exist is an error after a few looks, and not only at the timeout.
    """
    level = "read_committed" if committed else "read_uncommitted"
    config = replace(engine.config.fetch, isolation_level=level)
    lookup = OffsetLookup(requests.cluster, config, rng=requests.rng)

    async def attempt(
        remaining: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        results: dict[TopicPartition, OffsetResult] = {}
        await lookup.request_from_leaders({tp: specs[tp] for tp in remaining}, results)
        return {tp: _result(requests, tp, result) for tp, result in results.items()}

    return await requests.each(specs, attempt, _LOOK_UP)


def _result(
    requests: AdminRequests, tp: TopicPartition, result: OffsetResult
) -> OffsetAndTimestamp | KafkaError | None:
    """Return the offset, or its error. A partition that its topic does not have is no outage."""
    if not isinstance(result, Failure):
        return result
    if isinstance(result.error, LeaderNotAvailableError):
        numbers = requests.cluster.metadata.partitions_for(tp.topic)  # the look-up has renewed it
        if numbers and tp.partition not in numbers:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return partition_error(_LOOK_UP, tp, code, "DESCRIBE")
    return result.error


async def log_bounds(
    requests: AdminRequests, engine: Engine, partitions: Collection[TopicPartition]
) -> tuple[
    AdminResults[TopicPartition, OffsetAndTimestamp | None],
    AdminResults[TopicPartition, OffsetAndTimestamp | None],
]:
    """Return the first offsets and the ends of logs."""
    starts = await log_offsets(requests, engine, dict.fromkeys(partitions, EARLIEST))
    return starts, await log_offsets(requests, engine, dict.fromkeys(partitions, LATEST))
