"""``KafkaConsumer`` with kafka-python's methods, arguments, returns and errors."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Self

from kohort import KafkaConsumer as NativeConsumer
from kohort.compat.kafka_python import errors
from kohort.compat.kafka_python._commits import commit_in_background
from kohort.compat.kafka_python._errors import raise_translated, translating
from kohort.compat.kafka_python._future import Future
from kohort.compat.kafka_python._listener import ListenerAdapter, check_listener
from kohort.compat.kafka_python._metrics import Metrics
from kohort.compat.kafka_python._options import (
    DEFAULTS,
    SESSION_TIMEOUT_BEFORE_3_0,
    inferred_version,
    is_eager,
    native_options,
    read_config,
)
from kohort.compat.kafka_python._private import (
    ClientView,
    ClusterView,
    CoordinatorView,
    HeartbeatView,
)
from kohort.compat.kafka_python._values import (
    ConsumerRecord,
    RecordConverter,
    commit_offsets,
    is_partition,
    to_partitions,
)
from kohort.compat.kafka_python.structs import (
    ConsumerGroupMetadata,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kohort.errors import (
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NotAssignedError,
)
from kohort.logs import get_logger

logger = get_logger("kohort.compat")

_STATES = {
    "<unjoined>": MemberState.UNJOINED,
    "<rebalancing>": MemberState.REBALANCING,
    "<stable>": MemberState.STABLE,
}
_ONE_WAY = (
    "a consumer has topics, a pattern or assigned partitions, one of these at a time. "
    "Call unsubscribe() first"
)
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class _Mode(Enum):
    """Source of the consumer's partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


class KafkaConsumer:
    """Consumer of kafka-python's shape that is kohort's inside.

    All keywords of kafka-python are accepted. Unless ``api_version`` is given, the constructor
    contacts the cluster. The page docs/migration.md lists what differs.
    """

    __module__ = "kohort.compat.kafka_python"

    DEFAULT_CONFIG = DEFAULTS
    DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735 = SESSION_TIMEOUT_BEFORE_3_0

    @translating
    def __init__(self, *topics: str, **configs: Any) -> None:
        self.config: dict[str, Any] = read_config(configs)
        options = native_options(self.config, configs)
        self._native: NativeConsumer = NativeConsumer(**options)
        self._records = RecordConverter(
            options.get("key_deserializer"), options.get("value_deserializer")
        )
        self._closed = False
        self._mode = _Mode.NONE
        self._listener: ListenerAdapter | None = None
        enabled = self.config["metrics_enabled"]
        self._metrics = Metrics(self.config, self._native.metrics) if enabled else None
        self._heartbeat = HeartbeatView(self._native)
        if self.config["api_version"] is None:
            self._contact_cluster()
        if topics:
            self.subscribe(topics)

    def _contact_cluster(self) -> None:
        try:
            self.bootstrap(self.config["bootstrap_timeout_ms"])
        except BaseException:
            self._native.close()
            raise
        served = self._native.explain().as_dict()["cluster"].get("api_versions") or {}
        self.config["api_version"] = inferred_version(served)

    @property
    def _client(self) -> ClientView:
        return ClientView(ClusterView(self._native, self._topics_of_interest))

    @property
    def _coordinator(self) -> CoordinatorView:
        return CoordinatorView(self._heartbeat, self.group_metadata)

    def _topics_of_interest(self) -> set[str]:
        if self._mode is _Mode.ASSIGNED:
            return {tp.topic for tp in self._native.assignment()}
        return set(self._native.subscription() or ())

    # -- records ------------------------------------------------------------------------------

    @translating
    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records that are buffered, or wait for some up to ``timeout_ms``.

        With ``update_offsets=False`` the positions stay, and the next poll returns the same
        records. Raises what kafka-python raises.
        """
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        if max_records is not None and not isinstance(max_records, int):
            raise TypeError("max_records must be an integer")
        if max_records is not None and max_records <= 0:
            raise ValueError("max_records must be positive")
        self._heartbeat.last_poll = time.monotonic()
        found = self._native.poll(timeout_ms, max_records)
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            to_record = self._records.to_record
            for tp, batch in found.items():
                records[TopicPartition(*tp)] = [to_record(each) for each in batch]
        except BaseException:
            self._rewind(found)  # a deserializer raised for None, or Ctrl-C: nothing is skipped
            raise
        if not update_offsets:
            self._rewind(found)
        return records

    def _rewind(self, records: Mapping[Any, Sequence[Any]]) -> None:
        for tp, batch in records.items():
            if batch and tp in self._native.assignment():
                self._native.seek(tp, batch[0].offset)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        try:
            record = next(self._native)
        except KafkaError as error:
            raise_translated(error)
        try:
            return self._records.to_record(record)
        except BaseException:
            self._rewind({TopicPartition(record.topic, record.partition): [record]})
            raise

    # -- subscription -------------------------------------------------------------------------

    @translating
    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Any = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose names the pattern matches."""
        if not topics and not pattern:
            raise ValueError("Must provide topics or pattern")
        mode = _Mode.PATTERN if pattern else _Mode.TOPICS
        if (topics and pattern) or self._mode not in (_Mode.NONE, mode):
            raise errors.IllegalStateError(_ONE_WAY)
        if topics and (isinstance(topics, str) or not isinstance(topics, Sequence)):
            raise TypeError("Topics must be a list (or non-str sequence)")
        adapter = None
        if listener:
            check_listener(listener)
            eager = is_eager(self.config["partition_assignment_strategy"])
            adapter = ListenerAdapter(listener, eager=eager)
        if pattern:
            self._native.subscribe(pattern=pattern, listener=adapter)
        else:
            self._native.subscribe(topics, listener=adapter)
        self._mode, self._listener = mode, adapter

    @translating
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; none of them is ``unsubscribe()``."""
        chosen = list(partitions)
        if not chosen:
            self.unsubscribe()
            return
        if self._mode not in (_Mode.NONE, _Mode.ASSIGNED):
            raise errors.IllegalStateError(_ONE_WAY)
        self._native.assign(chosen)
        self._mode = _Mode.ASSIGNED

    @translating
    def unsubscribe(self) -> None:
        """Commit if that is automatic, leave the group and drop all partitions.

        The listener is not called.
        """
        if self._listener is not None:
            self._listener.mute()
        self._native.unsubscribe()
        self._mode, self._listener = _Mode.NONE, None

    @translating
    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, a copy; None before ``subscribe()``."""
        if self._mode not in (_Mode.TOPICS, _Mode.PATTERN):
            return None
        return set(self._native.subscription() or ())

    @translating
    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions, a copy."""
        return to_partitions(self._native.assignment())

    @translating
    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume()``."""
        _check_partitions(partitions)
        self._native.pause(*partitions)

    @translating
    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions, a copy."""
        return to_partitions(self._native.paused())

    @translating
    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        _check_partitions(partitions)
        self._native.resume(*partitions)

    # -- positions ----------------------------------------------------------------------------

    @translating
    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Return the offset of the next record; None if it is not known in time.

        Without a timeout it waits until the position is known.
        """
        self._check_assigned(partition)
        while True:
            found = self._position(partition, timeout_ms)
            if found is not None or timeout_ms is not None:
                return found

    def _position(self, partition: TopicPartition, timeout_ms: float | None) -> int | None:
        try:
            return self._native.position(partition, timeout_ms)
        except NoBrokersAvailable:
            raise
        except KafkaTimeoutError:
            return None

    @translating
    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record as of the last fetch; None before one."""
        self._check_assigned(partition)
        return self._native.highwater(partition)

    def _check_assigned(self, partition: TopicPartition) -> None:
        if not is_partition(partition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if partition not in self._native.assignment():
            raise errors.IllegalStateError("Partition is not assigned")

    @translating
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset."""
        if not is_partition(partition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        try:
            self._native.seek(partition, offset)
        except NotAssignedError as error:
            raise ValueError("Unassigned partition") from error

    @translating
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first offset of these partitions, or of all."""
        self._native.seek_to_beginning(*self._assigned_or(partitions))

    @translating
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all."""
        self._native.seek_to_end(*self._assigned_or(partitions))

    def _assigned_or(self, partitions: tuple[TopicPartition, ...]) -> Iterable[TopicPartition]:
        _check_partitions(partitions)
        assigned = self._native.assignment()
        if not partitions and not assigned:
            raise ValueError("No partitions are currently assigned")
        for tp in partitions:
            if tp not in assigned:
                raise ValueError(f"Unassigned partition: {tp}")
        return partitions

    @translating
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        found = self._native.beginning_offsets(partitions, timeout_ms)
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    @translating
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets after the last records of partitions."""
        found = self._native.end_offsets(partitions, timeout_ms)
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    @translating
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets at or after timestamps in milliseconds; None where none is."""
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {tp} is {timestamp}. "
                    "The target time cannot be negative."
                )
        found = self._native.offsets_for_times(timestamps, timeout_ms)
        return {
            TopicPartition(*tp): None if at is None else OffsetAndTimestamp(*at)
            for tp, at in found.items()
        }

    # -- commits ------------------------------------------------------------------------------

    @translating
    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit the positions or the given offsets, and wait for the answer."""
        self._check_group()
        self._native.commit(None if offsets is None else commit_offsets(offsets), timeout_ms)

    @translating
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[Any, Any], Any] | None = None,
    ) -> Future:
        """Commit without waiting.

        ``callback(offsets, error)`` is called by a later call; the error is None if it worked.
        """
        self._check_group()
        wanted = callback or self.config["default_offset_commit_callback"]
        return commit_in_background(self._native, offsets, wanted)

    @translating
    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """Return the committed offset, with ``metadata`` all of it; None if there is none."""
        self._check_group()
        if not is_partition(partition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        found: Any = self._native.committed(partition, metadata=True, timeout_ms=timeout_ms)
        if found is None:
            return None
        offset: int = found.offset
        return OffsetAndMetadata(*found) if metadata else offset

    @translating
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the membership, for ``KafkaProducer.send_offsets_to_transaction()``."""
        if self.config["group_id"] is None:
            return ConsumerGroupMetadata(group_id=None)
        found = self._native.group_metadata()
        return ConsumerGroupMetadata(*found[:4], _STATES.get(found.state, found.state))

    def _check_group(self) -> None:
        if self.config["group_id"] is None:
            raise errors.IllegalStateError("Requires group_id")

    # -- the cluster --------------------------------------------------------------------------

    @translating
    def topics(self) -> set[str]:
        """Return the names of all topics but Kafka's internal ones."""
        return set(self._native.topics()) - _INTERNAL_TOPICS

    @translating
    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the partitions of a topic; empty if there is no such topic."""
        return set(self._native.partitions_for_topic(topic))

    @translating
    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster is known, without a timeout for as long as it takes."""
        deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            left = deadline - time.monotonic()
            try:
                self._native.bootstrap(1000 * min(max(left, 0.0), 3600.0), refresh)
                return
            except KafkaTimeoutError as error:
                if time.monotonic() >= deadline:
                    servers = self.config["bootstrap_servers"]
                    text = f"Unable to bootstrap from {servers}: {error}"
                    raise errors.KafkaTimeoutError(text) from error

    @translating
    def bootstrap_connected(self) -> bool:
        """Return True if the cluster has been reached and the consumer is open."""
        return self._native.bootstrap_connected()

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:
        """Return ``{group: {name: figure}}``; None if ``metrics_enabled=False``.

        With ``raw`` it is ``{MetricName: KafkaMetric}``.
        """
        if self._metrics is None:
            return None
        return self._metrics.collect_raw() if raw else dict(self._metrics.collect())

    # -- the end ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.close(autocommit=exc_type is None)

    @translating
    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit if that is automatic, call the listener, leave the group.

        Without a timeout it takes ``request_timeout_ms`` at most. It may be called twice.
        """
        if self._closed:
            return
        self._closed = True
        limit = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        self._native.close(autocommit=autocommit, timeout_ms=limit)


def _check_partitions(partitions: Iterable[object]) -> None:
    if not all(map(is_partition, partitions)):
        raise TypeError("partitions must be TopicPartition namedtuples")
