"""aiokafka's consumer, by calls of kohort's."""

from __future__ import annotations

import asyncio
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from kohort import AsyncKafkaConsumer
from kohort import TopicPartition as NativePartition
from kohort.compat.aiokafka import errors
from kohort.compat.aiokafka._kohort import NOWHERE, POLL_MS, START_MS, WAIT_MS, NativeConsumer
from kohort.compat.aiokafka._options import ASSIGNORS, CLIENT_ID, check_options, chosen_loop
from kohort.compat.aiokafka._private import INTERNAL_TOPICS, AioClient, AioCoordinator
from kohort.compat.aiokafka._subscription import (
    INSIDE_LISTENER,
    SubscriptionKind,
    SubscriptionView,
)
from kohort.compat.aiokafka._values import (
    all_partitions,
    offsets_to_commit,
    to_native,
    to_partitions,
)
from kohort.compat.aiokafka.abc import ConsumerRebalanceListener
from kohort.compat.aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from kohort.errors import (
    ConsumerClosedError,
    CorruptBatchError,
    KafkaError,
    KafkaTimeoutError,
    NotAssignedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kohort.logs import error_text, get_logger

logger = get_logger("kohort.compat.aiokafka")

STOP_SECONDS = 5.0
"""Time that ``stop()`` gives to pending calls to return."""


class AIOKafkaConsumer:
    """A client that reads topics, with the methods of aiokafka's consumer.

    It rebalances also while it is not polled. Records, errors, offsets and partitions are
    aiokafka's own where it is installed.
    """

    __module__ = "kohort.compat.aiokafka"

    _closed: bool | None = None
    """For the __del__ of a consumer whose options are wrong."""

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: Any = "localhost",
        client_id: str | None = CLIENT_ID,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[Any], Any] | None = None,
        value_deserializer: Callable[[Any], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 * 1024 * 1024,
        request_timeout_ms: int = 40 * 1000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 5 * 60 * 1000,
        partition_assignment_strategy: Any = ASSIGNORS,
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: Any = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        given = {name: each for name, each in locals().items() if name not in ("self", "topics")}
        self._loop: asyncio.AbstractEventLoop = chosen_loop(loop)
        check_options(given)
        self._group_id: str | None = group_id
        self._group_instance_id: str | None = group_instance_id
        self._auto_offset_reset: str = auto_offset_reset
        self._enable_auto_commit: bool = enable_auto_commit
        self._fetcher: object | None = None
        self._coordinator: AioCoordinator | None = None
        self._client: AioClient = AioClient(self, given)
        self._subscription: SubscriptionView = SubscriptionView(group_id)
        self._kohort: NativeConsumer = NativeConsumer(given)
        self._closed = False
        if topics:
            self._subscription.subscribe(checked_topics(topics), None)

    _is_finalizing = staticmethod(sys.is_finalizing)

    def __del__(self, _warnings: Any = warnings) -> None:
        # The end of the interpreter clears modules and classes.
        if self._closed is False and not self._is_finalizing():
            if self._fetcher is not None:
                with _warnings.catch_warnings():  # one warning is enough
                    _warnings.simplefilter("ignore")
                    del self._kohort.native
            _warnings.warn(f"Unclosed AIOKafkaConsumer {self!r}", ResourceWarning, source=self)
            context = {"consumer": self, "message": "Unclosed AIOKafkaConsumer"}
            self._loop.call_exception_handler(context)

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, if subscribed, wait for the first assignment.

        Missing topics are created where the cluster creates topics. Raises KafkaConnectionError
        without a reachable broker, and the errors for which a group refuses a member.
        """
        assert self._loop is asyncio.get_running_loop(), (
            "Please create objects with the same loop as running with"
        )
        assert self._fetcher is None, "Did you call `start` twice?"
        if self._closed:
            raise errors.ConsumerStoppedError()
        native = self._kohort.native
        self._fetcher = object()
        self._subscription.matching = _weak_subscription(native)
        try:
            with self._kohort.errors.translating(starting=True):
                await native.start()
            self._coordinator = AioCoordinator(native, self._client._options)
            with self._kohort.errors.translating():
                await self._start_subscription()
        except BaseException:
            await self._undo_start()
            raise

    async def _undo_start(self) -> None:
        self._coordinator = self._fetcher = None
        try:
            await self._kohort.native.close()
        except KafkaError as error:
            logger.warning("closing after a failed start() failed: %s", error_text(error))
        if not self._closed:
            self._kohort.renew()

    async def _start_subscription(self) -> None:
        view, native = self._subscription, self._kohort.native
        if view.kind is SubscriptionKind.NONE:
            return
        seconds = self._kohort.request_seconds
        missing = set(view.named)
        if view.is_automatic and missing:
            missing -= set(await native.topic_ids(missing))
        if view.is_automatic and missing:
            await self._wait_for_topics(missing, seconds)
        self._apply_subscription()
        if not view.is_automatic or not (view.named or self._group_id is not None):
            return
        deadline = self._loop.time() + seconds
        while view.subscription is not None and self._assigned_now() is None:
            await native.poll(START_MS, 1, partitions=NOWHERE)
            if self._group_id is None and self._loop.time() > deadline:
                raise errors.UnknownTopicOrPartitionError()
        if self._kohort.options["auto_offset_reset"] == "latest":
            await self._wait_for_positions(self._assigned_now() or (), seconds)

    async def _wait_for_topics(self, missing: set[str], seconds: float) -> None:
        """Wait until topics exist that the cluster creates when they are asked for.

        Only then the group is joined, so that its first assignment has them.
        """
        native = self._kohort.native
        deadline = self._loop.time() + seconds
        native.assign([NativePartition(topic, 0) for topic in missing])
        while any(native.known_partitions(topic) is None for topic in missing):
            try:
                await native.poll(START_MS, 1, partitions=NOWHERE)
            except UnknownTopicOrPartitionError:
                pass  # another client may create it meanwhile
            if self._loop.time() > deadline:
                raise errors.UnknownTopicOrPartitionError()
        await native.unsubscribe()

    async def stop(self) -> None:
        """Commit (if automatic), leave the group, and end all pending calls.

        The listener is not called. Errors are logged. Calling it again has no effect.
        """
        if self._closed:
            return
        self._closed = True
        self._subscription.adapter = None
        try:
            await self._kohort.native.close()
        except KafkaError as error:
            logger.error("stop() failed: %s", error_text(error))
        if not INSIDE_LISTENER.get():
            await self._kohort.calls.readers_returned(STOP_SECONDS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- records ------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Wait for the next record, of these partitions if there are any."""
        assert all_partitions(partitions)
        if self._closed:
            raise errors.ConsumerStoppedError()
        self._require_started()
        chosen, native, view = to_native(partitions), self._kohort.native, self._subscription
        with self._kohort.calls.reading():
            try:
                while True:
                    epoch = view.epoch
                    if self._kohort.calls.is_busy or self._assigned_now() is None:
                        await native.poll(WAIT_MS, 1, partitions=NOWHERE)
                        continue
                    if chosen:
                        found = await native.poll(POLL_MS, 1, partitions=chosen)
                        if not found:
                            continue
                        ((record,),) = found.values()
                    else:
                        record = await native.__anext__()
                    if epoch == view.epoch or self._is_current(record):
                        return self._kohort.converter.to_record(record)
            except StopAsyncIteration:
                raise errors.ConsumerStoppedError() from None
            except KafkaError as error:
                self._raise_translated(error)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return buffered records by partition, or ``{}`` if none arrive in time."""
        assert all_partitions(partitions)
        if self._closed:
            raise errors.ConsumerStoppedError()
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        self._require_started()
        chosen, native, view = to_native(partitions), self._kohort.native, self._subscription
        deadline = self._loop.time() + timeout_ms / 1000
        with self._kohort.calls.reading():
            try:
                while True:
                    epoch, left_ms = view.epoch, max((deadline - self._loop.time()) * 1000, 0)
                    if self._kohort.calls.is_busy or self._assigned_now() is None:
                        await native.poll(min(WAIT_MS, left_ms), 1, partitions=NOWHERE)
                        found = {}
                    else:
                        found = await native.poll(left_ms, max_records, partitions=chosen or None)
                    if epoch != view.epoch:
                        found = {
                            tp: each for tp, each in found.items() if self._is_current(each[0])
                        }
                    if found or not left_ms:
                        return self._converted(found)
            except ConsumerClosedError:
                return {}
            except KafkaError as error:
                self._raise_translated(error)

    def _converted(
        self, found: dict[NativePartition, list[Any]]
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        convert = self._kohort.converter.to_record
        return {TopicPartition(*tp): list(map(convert, each)) for tp, each in found.items()}

    def _is_current(self, record: Any) -> bool:
        """Return True if a record belongs to the assignment of now. Otherwise give it back."""
        tp = NativePartition(record.topic, record.partition)
        if not self._kohort.calls.is_busy and tp in self._assigned_partitions():
            return True
        with suppress(KafkaError):  # it may be no longer assigned
            self._kohort.native.seek(tp, record.offset)
        return False

    def _raise_translated(self, error: KafkaError) -> NoReturn:
        """Raise aiokafka's error, and go on as aiokafka does.

        A record that is too large is skipped. A corrupt batch is fetched again.
        """
        native, tp = self._kohort.native, getattr(error, "topic_partition", None)
        with suppress(KafkaError):  # the partition may be no longer assigned
            if isinstance(error, RecordTooLargeError) and tp is not None:
                native.seek(tp, (error.offset or 0) + 1)
            elif isinstance(error, CorruptBatchError) and tp in (positions := native.positions()):
                native.seek(tp, positions[tp])
        self._kohort.errors.raise_translated(error)

    def __aiter__(self) -> Self:
        if self._closed:
            raise errors.ConsumerStoppedError()
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        while True:
            try:
                return await self.getone()
            except errors.ConsumerStoppedError:
                raise StopAsyncIteration from None
            except errors.RecordTooLargeError:
                logger.exception("a record was skipped")

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until they are resumed."""
        self._apply_to(self._kohort.native.pause, partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._apply_to(self._kohort.native.resume, partitions)

    def _apply_to(self, function: Callable[..., Any], partitions: tuple[Any, ...]) -> None:
        if not all_partitions(partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        if not partitions:
            return
        chosen = to_native(self._chosen_or_assigned(partitions))
        self._require_started()
        self._call_in_order(lambda: function(*chosen))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(to_partitions(self._kohort.native.paused()) & self._assigned_partitions())

    # -- subscription and assignment ----------------------------------------------------------

    def subscribe(
        self,
        topics: Any = (),
        pattern: Any = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern, in place of an earlier subscription.

        The assignment ends at once, and the group is joined again.
        """
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is None:
            self._subscription.subscribe(checked_topics(topics), listener)
        else:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
            self._subscription.subscribe_pattern(compiled, listener)
        self._call_in_order(self._apply_subscription)

    def _apply_subscription(self) -> None:
        """Give kohort's consumer the subscription of now."""
        view, native = self._subscription, self._kohort.native
        if view.kind is SubscriptionKind.ASSIGNED:
            native.assign(to_native(view.assignment or ()))
            return
        before = native.subscription()
        if view.pattern is not None:
            native.subscribe(pattern=view.pattern, listener=view.adapter)
        elif view.named:
            native.subscribe(sorted(view.named), listener=view.adapter)
            if before == view.named and self._group_id is not None:
                native.enforce_rebalance("subscribe() was called again")

    def _call_in_order(self, function: Callable[[], Any]) -> None:
        """Call the function now, or after an unsubscribe() that has not ended.

        Before ``start()`` there is nothing to call.
        """
        if self._fetcher is not None and not self._closed:
            with self._kohort.errors.translating():
                self._kohort.calls.run(function)

    def unsubscribe(self) -> None:
        """Remove subscription and assignment at once, and leave the group in the background."""
        if self._closed:
            return
        self._subscription.unsubscribe()
        native = self._kohort.native
        self._call_in_order(native.unsubscribe)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions, in place of the earlier ones."""
        self._subscription.assign(partitions)
        if self._subscription.assignment:
            self._call_in_order(self._apply_subscription)
        else:
            native = self._kohort.native
            self._call_in_order(native.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; those that match the pattern now."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._assigned_partitions()

    def _assigned_partitions(self) -> frozenset[TopicPartition]:
        return self._assigned_now() or frozenset()

    def _assigned_now(self) -> frozenset[TopicPartition] | None:
        """Return the assignment, or None if there is none yet."""
        view = self._subscription
        if self._group_id is None and view.is_automatic:
            if self._fetcher is None or self._kohort.calls.is_busy:
                return None
            return to_partitions(self._kohort.native.assignment()) or None
        return view.assignment

    def _chosen_or_assigned(self, partitions: tuple[Any, ...]) -> frozenset[TopicPartition]:
        """Return the partitions, all by default. Raise an error for what is not assigned."""
        if not all_partitions(partitions):
            raise TypeError("partitions must be TopicPartition instances")
        assigned = self._assigned_partitions()
        if not partitions:
            assert assigned, "No partitions are currently assigned"
            return assigned
        foreign = to_partitions(partitions) - assigned
        if foreign:
            raise errors.IllegalStateError(f"Partitions {set(foreign)} are not assigned")
        return to_partitions(partitions)

    def _require_started(self) -> None:
        if self._fetcher is None:
            raise errors.IllegalStateError("The consumer is not started. Await start() first")

    # -- offsets and metadata -----------------------------------------------------------------

    async def commit(self, offsets: Any = None) -> None:
        """Commit the positions, or these offsets, and wait for it without a time limit."""
        self._require_group()
        view = self._subscription
        if view.subscription is None:
            raise errors.IllegalStateError("Not subscribed to any topics")
        if view.assignment is None:
            raise errors.IllegalStateError("No partitions assigned")
        chosen = None if offsets is None else offsets_to_commit(offsets)
        for tp in chosen or ():
            if tp not in view.assignment:
                raise errors.IllegalStateError(f"Partition {tp} is not assigned")
        self._require_started()
        await self._kohort.calls.settled()
        with self._kohort.errors.translating():
            while True:
                try:
                    return await self._kohort.native.commit(chosen)
                except KafkaTimeoutError:
                    if self._closed:
                        raise

    def _require_group(self) -> None:
        if self._group_id is None:
            raise errors.IllegalOperation("Requires group_id")

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition, or None."""
        self._require_group()
        self._require_started()
        with self._kohort.errors.translating():
            return await self._kohort.native.committed(NativePartition(*partition))

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record, and wait until it is known."""
        tp, view = NativePartition(*partition), self._subscription
        if tp not in self._assigned_partitions():
            raise errors.IllegalStateError(f"Partition {partition} is not assigned")
        self._require_started()
        while True:
            with self._kohort.errors.translating():
                try:
                    await self._kohort.calls.settled()
                    return await self._kohort.native.position(tp)
                except (NotAssignedError, KafkaTimeoutError):
                    pass  # a rebalance, which may bring the partition back
            if view.subscription is None or (view.assignment and tp not in view.assignment):
                raise errors.IllegalStateError(f"Partition {partition} is not assigned")
            await asyncio.sleep(WAIT_MS / 1000)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record, or None before the first fetch."""
        return self._fetched(self._kohort.native.highwater, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset, or None before the first fetch."""
        return self._fetched(self._kohort.native.last_stable_offset, partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last fetch in milliseconds, or None before the first."""
        return self._fetched(self._kohort.native.last_poll_timestamp, partition)

    def _fetched(
        self, read: Callable[[NativePartition], int | None], partition: TopicPartition
    ) -> int | None:
        assert partition in self._assigned_partitions(), "Partition is not assigned"
        try:
            return read(NativePartition(*partition))
        except NotAssignedError:
            return None  # a rebalance has begun

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this offset of the partition next."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._require_started()
        assert self._assigned_now() is not None, "No partitions are currently assigned"
        tp, native = NativePartition(*partition), self._kohort.native
        if tp not in self._assigned_partitions():
            raise errors.IllegalStateError(f"No current assignment for partition {partition}")

        def move() -> None:
            try:
                native.seek(tp, offset)
            except NotAssignedError:
                logger.info("seek() has no effect on %s-%d: a rebalance has begun", *tp)

        self._call_in_order(move)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Set positions to the first offsets, and wait until they are known."""
        return await self._seek_and_wait(self._kohort.native.seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Set positions to the log end offsets, and wait until they are known."""
        return await self._seek_and_wait(self._kohort.native.seek_to_end, partitions)

    async def _seek_and_wait(
        self, method: Callable[..., None], partitions: tuple[Any, ...]
    ) -> bool:
        chosen = to_native(self._chosen_or_assigned(partitions))
        self._require_started()
        await self._kohort.calls.settled()
        with self._kohort.errors.translating():
            method(*chosen)
        return await self._wait_for_positions(chosen, self._kohort.request_seconds)

    async def _wait_for_positions(
        self, partitions: Iterable[tuple[str, int]], seconds: float
    ) -> bool:
        """Wait for positions, so that no record produced later is missed."""
        chosen = to_native(partitions)
        found: list[Any] = []
        try:
            async with asyncio.timeout(seconds):
                looked_up = [self._kohort.native.position(tp) for tp in chosen]
                found = await asyncio.gather(*looked_up, return_exceptions=True)
        except TimeoutError:
            return False
        return not any(isinstance(each, BaseException) for each in found)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Set positions to the committed offsets, and return these offsets."""
        chosen = self._chosen_or_assigned(partitions)
        self._require_group()
        self._require_started()
        found: dict[TopicPartition, int | None] = {}
        with self._kohort.errors.translating():
            for tp in chosen:
                offset = found[tp] = await self._kohort.native.committed(NativePartition(*tp))
                if offset is not None:
                    self._kohort.native.seek(NativePartition(*tp), offset)
        return found

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a timestamp for each partition, or None."""
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {tp} is {timestamp}. "
                    "The target time cannot be negative."
                )
        self._require_started()
        wanted = {NativePartition(*tp): int(each) for tp, each in timestamps.items()}
        with self._kohort.errors.translating():
            found = await self._kohort.native.offsets_for_times(wanted)
        return {
            TopicPartition(*tp): None if at is None else OffsetAndTimestamp(at.offset, at.timestamp)
            for tp, at in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.beginning_offsets(to_native(partitions))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.end_offsets(to_native(partitions))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    # -- the cluster --------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return all topics except internal ones."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.topics()
        self._client.cluster.names = frozenset(found)
        return set(found) - INTERNAL_TOPICS

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the known partitions of a topic, or None."""
        return self._kohort.native.known_partitions(topic)


def _weak_subscription(native: AsyncKafkaConsumer[Any, Any]) -> Callable[[], Iterable[str]]:
    method = weakref.WeakMethod(native.subscription)

    def read() -> Iterable[str]:
        found = method()
        return () if found is None else found()

    return read


def checked_topics(topics: Any) -> frozenset[str]:
    """Return the topics as a set. Raise TypeError for a single name."""
    if not isinstance(topics, (tuple, set, list)):
        raise TypeError("Topics should be list of strings")
    return frozenset(topics)
