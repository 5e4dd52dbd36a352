"""The async admin client. Its driver runs the engine in a task of the caller's event loop.

``python -m tools.sync_api`` writes the sync admin client, ``_sync.py``, from this text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast

from kohort.admin import (
    _base,
    _groups,
    _members,
    _offsets,
    _progress,
    _records,
    _reset,
    _share_offsets,
    _topics,
)
from kohort.admin._lag import GroupLag
from kohort.admin._members import MemberToRemove
from kohort.admin._plan import ResetPlan
from kohort.admin._results import AdminResults, GroupDescription, GroupListings, ShareOffset
from kohort.admin._topics import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    TopicDescription,
)
from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_secrets
from kohort.consumer.api import _arguments
from kohort.consumer.driver._driver import Plan
from kohort.consumer.driver._life import CloseRequest
from kohort.consumer.driver._task_driver import TaskDriver
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kohort import _options
    from kohort.consumer.api import _typing
else:
    _options = LazyModule("kohort._options")
    _typing = LazyModule("kohort.consumer.api._typing")

T = TypeVar("T")


class AsyncKafkaAdminClient(_base.AdminBase):
    """A client for the groups, offsets, topics and settings of a cluster, on asyncio or trio.

    ``async with AsyncKafkaAdminClient(bootstrap_servers="localhost:9092") as admin``

    The options, methods and errors are those of :class:`~kohort.KafkaAdminClient`. The methods that
    wait are awaited. ``async with``, ``start()`` or the first awaited call starts the client. On
    trio only ``async with`` can.
    """

    __module__ = "kohort"

    _close_hint = "await close(), or use an async with block"

    if TYPE_CHECKING:
        _driver: TaskDriver

    def __init__(self, **options: Unpack[_options.AdminOptions]) -> None:
        configs = cast("dict[str, Any]", options)
        conceal_secrets(configs)
        self._set_up(_base.config_of_options(configs))

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> TaskDriver:
        return TaskDriver(config)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, Any], *, unsupported: Literal["raise", "warn"] = "raise"
    ) -> Self:
        """Return an admin client with the dotted names of Java and librdkafka as options.

        The options of consumers are ignored with a DEBUG line. ``unsupported="warn"`` logs other
        names that are unknown or not supported, in place of an error.
        """
        return cls._from_properties(properties, unsupported)

    async def _call(
        self, timeout_ms: float | None, function: Callable[..., Awaitable[T]], *arguments: Any
    ) -> T:
        self._driver.life.check_usable()
        seconds = self._seconds(timeout_ms)
        return await self._driver.call(Plan(function, (*arguments, seconds), seconds))

    # -- start and close ----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. The first call does so as well.

        Raises NoBrokersAvailable if no bootstrap server was reachable for ``bootstrap_timeout_ms``,
        and SecurityError if all of them reject TLS or the login.
        """
        await self._driver.start()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Close the connections, within ``timeout_ms``, by default 5,000. Idempotent."""
        timeout = _arguments.timeout_seconds(timeout_ms, 1000 * CLOSE_TIMEOUT)
        assert timeout is not None
        await self._driver.close(CloseRequest(False, timeout, None))

    async def __aenter__(self) -> Self:
        await self._driver.enter_block()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._driver.life.note_left(exc_type)
        try:
            await self.close()
        finally:
            await self._driver.leave_block()

    # -- groups -------------------------------------------------------------------------------

    async def list_groups(
        self,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
        timeout_ms: float | None = None,
    ) -> GroupListings:
        """Return the groups of all brokers, of every type: classic, consumer, share and streams.

        The filters name states and types in upper or lower case, such as ``["Stable", "Empty"]``
        and ``["consumer"]``. ``errors`` of the result has the brokers that did not respond. The
        default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        states = _base.lowered(states_filter, "a state")
        types = _base.lowered(types_filter, "a type of group")
        return await self._call(timeout_ms, _groups.list_groups, states, types)

    async def describe_groups(
        self, group_ids: str | Iterable[str], timeout_ms: float | None = None
    ) -> AdminResults[str, GroupDescription]:
        """Return the state of groups, and their members with the partitions that they own.

        A group that does not exist has GroupIdNotFoundError. The default of ``timeout_ms`` is
        ``request_timeout_ms``.
        """
        wanted = _base.names(group_ids, "a group id")
        return await self._call(timeout_ms, _groups.describe_groups, wanted)

    async def delete_groups(
        self, group_ids: str | Iterable[str], timeout_ms: float | None = None
    ) -> AdminResults[str, None]:
        """Delete groups with their offsets. A group with members has NonEmptyGroupError.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        wanted = _base.names(group_ids, "a group id")
        return await self._call(timeout_ms, _groups.delete_groups, wanted)

    async def group_lag(
        self,
        group_ids: str | Iterable[str],
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> AdminResults[str, GroupLag]:
        """Return how far groups are behind, in records and in seconds, and why they do not move.

        Seconds are the age of the oldest record that is not done. It is read from the log at the
        committed offset of each partition that is behind. With read_committed the end of a log is
        its last stable offset. For a share group the brokers report records, and seconds are
        unknown. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        wanted = _base.names(group_ids, "a group id")
        committed = _base.is_committed(isolation_level)
        return await self._call(timeout_ms, _progress.group_lag, wanted, committed)

    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[str | MemberToRemove],
        timeout_ms: float | None = None,
    ) -> AdminResults[MemberToRemove, None]:
        """Remove members from a group of either protocol, so that others get their partitions.

        A text is the id of a member. ``MemberToRemove(group_instance_id=...)`` is a static member.
        A member that is not in the group has UnknownMemberIdError, as each one of a share group. A
        consumer that still runs joins again. Needs Kafka 2.3. The default of ``timeout_ms`` is
        ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        chosen = _base.members_to_remove(members)
        return await self._call(timeout_ms, _members.remove_group_members, group, chosen)

    # -- offsets ------------------------------------------------------------------------------

    async def list_group_offsets(
        self,
        group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        timeout_ms: float | None = None,
    ) -> AdminResults[str, AdminResults[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of groups. Partitions without an offset are left out.

        A mapping has the partitions of each group, or None for all with an offset. A group that
        does not exist has no offsets. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        specs = _base.group_specs(group_specs)
        return await self._call(timeout_ms, _offsets.list_group_offsets, specs)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: _typing.CommitOffsets,
        timeout_ms: float | None = None,
    ) -> AdminResults[TopicPartition, None]:
        """Commit offsets for a group without members, ``{partition: OffsetAndMetadata | offset}``.

        A group that does not exist is created. Offsets of a group with members have
        UnknownMemberIdError. :meth:`reset_group_offsets` also checks the group and the offsets.
        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        chosen = _arguments.commit_offsets(offsets)
        return await self._call(timeout_ms, _offsets.alter_group_offsets, group, chosen)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: float | None = None,
    ) -> AdminResults[TopicPartition, None]:
        """Delete committed offsets of topics that no member of the group subscribes to.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        chosen = _arguments.topic_partitions(partitions)
        return await self._call(timeout_ms, _offsets.delete_group_offsets, group, chosen)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: str | int | datetime | timedelta | Mapping[TopicPartition, int] | ResetPlan,
        *,
        topics: str | Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        plan: bool = False,
        new_type: Literal["share"] | None = None,
        timeout_ms: float | None = None,
    ) -> ResetPlan:
        """Set the offsets of a group without members, and return what changed as a plan.

        In a share group these are the start offsets. The records after a start that the group has
        done are delivered again, also after an undo.

        ``plan=True`` changes nothing and returns the plan, to look at and to give as ``to`` later.
        The property ``undo`` of a plan is the plan for the way back.

        ``to`` is ``"earliest"``, ``"latest"``, an offset, a shift such as ``"+100"``, a time ago
        such as ``"-2h"`` or a ``timedelta``. It may be a time with a zone, as a ``datetime`` or in
        ISO format. A time stands for the first record at or after it, or the end of the log. A
        target outside of the log becomes its nearest end. Without ``topics`` and ``partitions``
        it applies to all partitions with a committed offset.

        A group that does not exist is created as a consumer group, or as a share group with
        ``new_type="share"``. The name of a group belongs to one of the two.

        Raises GroupHasMembersError for a group with members, OffsetsChangedError if another client
        committed since the plan was made, GroupIdNotFoundError, and ValueError for ``to``. An error
        of one partition is raised, and the reset changes nothing then. The default of
        ``timeout_ms`` is ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        named = None if topics is None else _base.names(topics, "a topic")
        chosen = None if partitions is None else _arguments.topic_partitions(partitions)
        _base.check_reset(to, named, chosen, group, new_type)
        arguments = group, to, named, chosen, plan, new_type
        return await self._call(timeout_ms, _reset.reset, *arguments)

    async def list_share_group_offsets(
        self,
        group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        timeout_ms: float | None = None,
    ) -> AdminResults[str, AdminResults[TopicPartition, ShareOffset]]:
        """Return the start offsets of share groups, with the number of records that are not done.

        A mapping has the partitions of each group, or None for all that the group has read. A group
        that does not exist has none. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        specs = _base.group_specs(group_specs)
        return await self._call(timeout_ms, _share_offsets.list_share_group_offsets, specs)

    async def alter_share_group_offsets(
        self,
        group_id: str,
        starts: Mapping[TopicPartition, int | None],
        timeout_ms: float | None = None,
    ) -> AdminResults[TopicPartition, None]:
        """Set where a share group without members begins. Records before that are done.

        A partition whose value is None begins as if it was never read. A group that does not exist
        is created. An offset outside of the log has OffsetOutOfRangeError, although the brokers
        would take it. A group with members has NonEmptyGroupError. :meth:`reset_group_offsets` has
        a plan and an undo. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        chosen = _base.start_offsets(starts)
        return await self._call(timeout_ms, _share_offsets.alter_share_group_offsets, group, chosen)

    async def delete_share_group_offsets(
        self, group_id: str, topics: str | Iterable[str], timeout_ms: float | None = None
    ) -> AdminResults[str, None]:
        """Delete the offsets of whole topics from a share group without members.

        The group then begins in them as a new one does. The default of ``timeout_ms`` is
        ``request_timeout_ms``.
        """
        [group] = _base.names(group_id, "a group id")
        named = _base.names(topics, "a topic")
        return await self._call(timeout_ms, _share_offsets.delete_share_group_offsets, group, named)

    async def find_offsets(
        self,
        to: str | int | datetime | timedelta,
        topics: str | Iterable[str],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the offset at a target in each partition of topics, as a reset would set it.

        ``to`` has the forms of :meth:`reset_group_offsets` except for a shift. The error of a
        partition is raised. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        named = _base.names(topics, "a topic")
        return await self._call(timeout_ms, _reset.find_offsets, to, named, None)

    async def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> AdminResults[TopicPartition, OffsetAndTimestamp | None]:
        """Return an offset of each log, by an :class:`~kohort.admin.OffsetSpec` or a timestamp.

        A timestamp in milliseconds stands for the first record at or after it. The result is None
        if there is no such record. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        specs = _base.offset_specs(topic_partition_specs)
        committed = _base.is_committed(isolation_level)
        return await self._call(timeout_ms, _offsets.list_partition_offsets, specs, committed)

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> AdminResults[TopicPartition, int]:
        """Delete the records before an offset of each partition, and return where its log starts.

        -1 stands for the end of the log. An offset after it has OffsetOutOfRangeError. Deleted
        records cannot be restored. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        offsets = _base.record_offsets(records_to_delete)
        return await self._call(timeout_ms, _records.delete_records, offsets)

    # -- topics -------------------------------------------------------------------------------

    async def describe_cluster(self, timeout_ms: float | None = None) -> ClusterDescription:
        """Return id, controller and brokers. The default of ``timeout_ms`` is that of a request."""
        return await self._call(timeout_ms, _topics.describe_cluster)

    async def list_topics(
        self, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[str]:
        """Return the sorted names of topics, without Kafka's internal ones by default.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        return await self._call(timeout_ms, _topics.list_topics, include_internal)

    async def describe_topics(
        self, topics: str | Iterable[str] | None = None, timeout_ms: float | None = None
    ) -> AdminResults[str, TopicDescription]:
        """Return the partitions, leaders and replicas of topics, or of all topics if None.

        No topic is created. The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        named = None if topics is None else _base.names(topics, "a topic")
        return await self._call(timeout_ms, _topics.describe_topics, named)

    async def create_topics(
        self,
        new_topics: Iterable[str] | Mapping[str, NewTopic | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> AdminResults[str, None]:
        """Create topics, such as ``{"orders": 6}`` or ``{"orders": NewTopic(6, configs={...})}``.

        Names alone stand for the numbers of partitions and replicas that the brokers have as
        defaults. ``validate_only`` creates nothing. Brokers learn of a new topic one by one. The
        default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        wanted = _base.new_topics(new_topics)
        return await self._call(timeout_ms, _topics.create_topics, wanted, validate_only)

    async def wait_for_topics(
        self, topic_names: str | Iterable[str], timeout_ms: float | None = None
    ) -> None:
        """Wait until a broker knows the topics and each of their partitions has a leader.

        Raises KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        named = _base.names(topic_names, "a topic")
        await self._call(timeout_ms, _topics.wait_for_topics, named)

    async def delete_topics(
        self, topics: str | Iterable[str], timeout_ms: float | None = None
    ) -> AdminResults[str, None]:
        """Delete topics with their records and the offsets that groups have committed for them.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        named = _base.names(topics, "a topic")
        return await self._call(timeout_ms, _topics.delete_topics, named)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> AdminResults[str, None]:
        """Add partitions, up to the given number of each topic. Keys may then change partitions.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        counts = _base.partition_counts(topic_partitions)
        return await self._call(timeout_ms, _topics.create_partitions, counts, validate_only)

    # -- settings -----------------------------------------------------------------------------

    async def describe_configs(
        self, config_resources: Iterable[ConfigResource], timeout_ms: float | None = None
    ) -> AdminResults[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers and groups, with the source of each value.

        The default of ``timeout_ms`` is ``request_timeout_ms``.
        """
        resources = _base.config_resources(config_resources)
        return await self._call(timeout_ms, _topics.describe_configs, resources)

    async def alter_configs(
        self,
        config_resources: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> AdminResults[ConfigResource, None]:
        """Set single settings, or return those whose value is None to their defaults (KIP-339).

        Other settings keep their values. ``validate_only`` changes nothing. The default of
        ``timeout_ms`` is ``request_timeout_ms``.
        """
        _base.config_resources(config_resources)
        changes = {ConfigResource(*key): dict(each) for key, each in config_resources.items()}
        return await self._call(timeout_ms, _topics.alter_configs, changes, validate_only)
