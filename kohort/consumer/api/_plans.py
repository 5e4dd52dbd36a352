"""The requests of both APIs: checked arguments, the coroutine to await, and its timeout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kohort.consumer.api import _arguments
from kohort.consumer.api._base import ConsumerBase
from kohort.consumer.engine._callback_queue import CommitCallback
from kohort.fetcher import EARLIEST, LATEST
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer.api import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer.api._typing")

T = TypeVar("T")


class Plan(NamedTuple, Generic[T]):
    """A call of the engine that an API has still to make."""

    function: Callable[[], Awaitable[T]]
    seconds: float
    """Timeout that ``function`` applies to itself."""


class RequestPlans(ConsumerBase):
    """The part that both APIs share of the methods that send requests.

    KafkaConsumer calls the engine with a plan, and AsyncKafkaConsumer awaits the call.
    """

    def _follow_commit(
        self,
        future: Any,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: _typing.CommitCallback | None,
    ) -> None:
        """Queue the callback of commit_async() when its future has a result."""
        wanted = callback or self._config.default_offset_commit_callback
        commits, callback_queue = self._engine.offset_requests.futures, self._engine.callback_queue
        commits.add(future)

        def done(future: Any) -> None:
            if wanted is not None and not future.cancelled():
                result = CommitCallback(wanted, offsets, future.exception())
                callback_queue.add_commit_callback(result)
            commits.discard(future)
            callback_queue.notify()

        future.add_done_callback(done)

    def _timeout(self, timeout_ms: float | None) -> float:
        """Return a timeout in seconds, which is ``request_timeout_ms`` for None."""
        seconds = _arguments.timeout_seconds(timeout_ms, self._config.client.request_timeout_ms)
        assert seconds is not None
        return seconds

    def _plan_commit(
        self, offsets: _typing.CommitOffsets | None, timeout_ms: float | None
    ) -> Plan[None]:
        self._life.check_usable()
        chosen = self._offsets_to_commit(offsets)
        timeout = self._timeout(timeout_ms)
        return Plan(lambda: self._engine.offset_requests.commit(chosen, timeout), timeout)

    def _plan_committed(
        self,
        partition: TopicPartition | Iterable[TopicPartition],
        metadata: bool,
        timeout_ms: float | None,
    ) -> Plan[Any]:
        self._require_group()
        one, chosen = _arguments.one_or_more(partition)
        timeout = self._timeout(timeout_ms)

        async def committed() -> Any:
            found = await self._engine.offset_requests.committed(chosen, timeout)
            offsets: dict[TopicPartition, int | OffsetAndMetadata | None] = {
                tp: at if metadata or at is None else at.offset for tp, at in found.items()
            }
            return offsets[chosen[0]] if one else offsets

        return Plan(committed, timeout)

    def _plan_assigned_committed(
        self, partitions: tuple[TopicPartition, ...], timeout_ms: float | None
    ) -> Plan[dict[TopicPartition, int | None]]:
        self._life.check_usable()
        self._require_group()
        return self._plan_committed(self._assigned_or(partitions), False, timeout_ms)

    def _seek_to(self, offsets: dict[TopicPartition, int | None]) -> None:
        for tp, offset in offsets.items():
            if offset is not None:
                self.seek(tp, offset)

    def _plan_position(self, partition: TopicPartition, timeout_ms: float | None) -> Plan[int]:
        self._life.check_usable()
        tp = _arguments.topic_partition(partition)
        timeout = self._timeout(timeout_ms)
        return Plan(lambda: self._engine.positions.find(tp, timeout), timeout)

    def _plan_partitions(self, topic: str, timeout_ms: float | None) -> Plan[set[int]]:
        (name,) = _arguments.topic_names([topic])
        timeout = self._timeout(timeout_ms)

        async def partitions() -> set[int]:
            return set(await self._engine.cluster_requests.partitions_of(name, timeout))

        return Plan(partitions, timeout)

    def _plan_topics(self, timeout_ms: float | None) -> Plan[set[str]]:
        timeout = self._timeout(timeout_ms)

        async def topics() -> set[str]:
            return set(await self._engine.cluster_requests.all_topics(timeout))

        return Plan(topics, timeout)

    def _plan_topic_ids(
        self, topics: _typing.Topics, timeout_ms: float | None
    ) -> Plan[dict[str, uuid.UUID]]:
        names = _arguments.topic_names(topics)
        timeout = self._timeout(timeout_ms)
        return Plan(lambda: self._engine.cluster_requests.topic_ids(names, timeout), timeout)

    def _plan_beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> Plan[dict[TopicPartition, int]]:
        return self._plan_boundary(partitions, EARLIEST, timeout_ms)

    def _plan_end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> Plan[dict[TopicPartition, int]]:
        return self._plan_boundary(partitions, LATEST, timeout_ms)

    def _plan_boundary(
        self, partitions: Iterable[TopicPartition], end: int, timeout_ms: float | None
    ) -> Plan[dict[TopicPartition, int]]:
        chosen = _arguments.topic_partitions(partitions)
        timeout = self._timeout(timeout_ms)
        requests = self._engine.offset_requests
        return Plan(lambda: requests.boundary_offsets(chosen, end, timeout), timeout)

    def _plan_offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None
    ) -> Plan[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = _arguments.timestamps(timestamps)
        timeout = self._timeout(timeout_ms)
        return Plan(lambda: self._engine.offset_requests.offsets_at(wanted, timeout), timeout)

    def _plan_bootstrap(self, timeout_ms: float | None, refresh: bool) -> Plan[None]:
        client, timeout = self._config.client, _arguments.timeout_seconds(timeout_ms)
        # With 0 each server has the time of one request.
        servers_ms = len(client.bootstrap_servers) * client.request_timeout_ms
        until_error_ms = client.bootstrap_timeout_ms or servers_ms
        seconds = (until_error_ms + client.request_timeout_ms) / 1000
        return Plan(
            lambda: self._engine.cluster_requests.bootstrap(timeout, refresh=refresh),
            seconds if timeout is None else timeout,
        )
