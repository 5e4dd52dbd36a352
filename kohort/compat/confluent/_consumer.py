"""``Consumer`` with confluent-kafka's methods, arguments, returns and errors."""

from __future__ import annotations

import math
import re
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, Self

from kohort import KafkaConsumer as NativeConsumer
from kohort import TopicPartition as NativePartition
from kohort.compat.confluent import _metadata
from kohort.compat.confluent._buffer import Buffer
from kohort.compat.confluent._errors import (
    CLOSED,
    HANDLE_CLOSED,
    is_of_client,
    to_error,
    to_message,
    translated,
    translating,
)
from kohort.compat.confluent._events import Events
from kohort.compat.confluent._offsets import OffsetStore, from_message, from_partitions
from kohort.compat.confluent._options import Options
from kohort.compat.confluent._transactions import group_metadata
from kohort.compat.confluent._values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    Message,
    TopicPartition,
    committed_metadata,
    failure,
    native,
    natives,
    offset_of,
    partition,
    to_messages,
)
from kohort.errors import IllegalStateError, NotAssignedError, RebalanceListenerError
from kohort.errors import KafkaError as NativeError
from kohort.logs import get_logger

logger = get_logger("kohort.compat")

MAX_MESSAGES = 1_000_000
PREFETCHED = 500
"""Messages that poll() fetches at a time. It returns them one by one."""
_KEEP_ALIVE_S = 0.1
"""Longest time in which fetched messages are returned without a poll of kohort's consumer."""
_LONGEST_WAIT_S = 0.5
"""Longest wait without a look at timers and at what else confluent-kafka reports."""
_PAUSE_S = 0.05
"""Pause after an error of the client, which kohort may raise again at once."""
_OWNER = "kohort.compat.confluent"
"""Owner of pauses of partitions that assign() left out."""

_INCREMENTAL = (
    "Changes to the current assignment must be made using incremental_assign() or "
    "incremental_unassign() when rebalance protocol type is COOPERATIVE"
)

Callback = Callable[[Any, list[TopicPartition]], Any]


class Consumer:
    """Consumer of confluent-kafka's shape that is kohort's inside.

    ``Consumer({"bootstrap.servers": ..., "group.id": ...})``. The page docs/migration.md lists what
    differs.
    """

    __module__ = "kohort.compat.confluent"

    _closed: bool = True
    """Also of a subclass that does not call this constructor."""

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        if config is None and not kwargs:
            raise TypeError("expected configuration dict")
        if config is not None and not isinstance(config, dict):
            raise TypeError("expected configuration dict")
        self._options = options = Options({**(config or {}), **kwargs})
        self._closed = False
        if options.first_token is not None:
            weakref.finalize(self, options.first_token.stop)
        self._native: NativeConsumer[Any, Any] = NativeConsumer(**options.keywords())
        self._buffer = Buffer()
        self._offsets = OffsetStore(
            self._native,
            self._buffer,
            options.on_commit,
            follows=options.auto_store,
            interval=options.commit_interval if options.auto_commit else None,
        )
        self._events = Events(self._native, self._buffer, self._offsets, options)
        self._listener = _Listener(self)
        self._given: dict[NativePartition, int] = {}
        """Offsets that assign() was called with."""
        self._polled_at = math.inf
        """Time of the latest poll of kohort's consumer; infinite before the first."""

    # -- messages -----------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or error, or None if there is none within ``timeout`` seconds.

        Without a timeout, or with a negative one, it waits for a message.
        """
        self._check_open()
        buffer = self._buffer
        if not buffer.count or time.monotonic() - self._polled_at >= _KEEP_ALIVE_S:
            self._wait(1, _limit(-1.0 if timeout is None else timeout), PREFETCHED)
        return buffer.take_one() if buffer.count else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return ``num_messages`` messages and errors, or fewer after ``timeout`` seconds.

        Without a timeout, or with a negative one, it waits until it has all.
        """
        if not 0 <= num_messages <= MAX_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        self._wait(num_messages, _limit(timeout), 0)
        return self._buffer.take(num_messages)

    def _wait(self, wanted: int, limit: float, at_once: int) -> None:
        """Fetch until ``wanted`` messages are buffered, or until the limit.

        Each fetch asks for ``at_once`` messages, or for the missing ones.
        """
        self._check_open()
        if self._buffer.count:
            if time.monotonic() - self._polled_at >= _KEEP_ALIVE_S:
                self._fetch(0.0, 1)
        elif wanted and not limit:
            self._fetch(0.0, at_once or wanted)
            return
        deadline = time.monotonic() + limit
        while (missing := wanted - self._buffer.count) > 0:
            left = deadline - time.monotonic()
            self._fetch(max(0.0, left), at_once or missing)
            if left <= 0 or self._closed:
                return

    def _has(self, count: int) -> bool:
        """True if ``count`` messages are buffered."""
        return self._buffer.count >= count

    def _put_back(self, messages: list[Message]) -> None:
        """Return these messages again next."""
        self._buffer.put_back(messages)

    def _fetch(self, seconds: float, most: int, *, reports: bool = True) -> None:
        """Poll kohort's consumer once, and buffer what it returns. Only poll() reports events."""
        now = time.monotonic()
        since, self._polled_at = now - self._polled_at, now
        if since > self._options.poll_interval and self._native.subscription():
            self._events.note_overdue(since)
            return  # the next poll calls on_lost
        self._offsets.commit_by_time(now)
        self._events.serve(now)
        wait = min(seconds, self._events.longest_wait(now))
        try:
            found = self._native.poll(1000 * wait, most)
        except NativeError as error:
            self._take_error(error, wait)
            return
        finally:
            self._polled_at = time.monotonic()
        try:
            for tp, records in found.items():
                to_messages(records)
                self._buffer.add(tp, records)
        except BaseException:  # Ctrl-C, after which no record may be missing
            first = self._buffer.drop(found.keys())
            for tp, records in found.items():
                self._native.seek(tp, first.get(tp, offset_of(records[0])))
            raise
        if not found:
            if reports:
                self._events.look(self._polled_at)
        elif self._options.partition_eof:
            self._events.look_for_ends()

    def _take_error(self, error: NativeError, wait: float) -> None:
        if isinstance(error, (IllegalStateError, RebalanceListenerError)):
            raise translated(error) from error.__cause__
        if is_of_client(error):
            self._events.report(to_error(error))
            time.sleep(min(wait, _PAUSE_S))
        else:
            self._events.add_error(to_message(error))

    # -- subscription -------------------------------------------------------------------------

    @translating
    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics, in place of an earlier subscription.

        A name that begins with ``^`` is a regular expression.
        """
        self._check_open()
        if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        if on_lost is not None and not callable(on_lost):
            raise TypeError("on_lost expects a callable")
        if not topics or not all(topics):
            raise failure(
                "_INVALID_ARG",
                "Failed to set subscription: Local: Invalid argument or configuration",
            )
        pattern = None
        if any(each.startswith("^") for each in topics):
            try:
                pattern = re.compile("|".join(map(_pattern_part, topics)))
            except re.error as error:
                raise failure("_INVALID_ARG", f"Failed to set subscription: {error}") from error
        if self._given:
            self.unassign()
        self._listener.set(on_assign, on_revoke, on_lost)
        if pattern is not None:
            self._native.subscribe(pattern=pattern, listener=self._listener)
        else:
            self._native.subscribe(topics, listener=self._listener)
        if math.isinf(self._polled_at):
            # Begin to join, as librdkafka does in the background.
            self._fetch(0.0, 1, reports=False)

    @translating
    def unsubscribe(self) -> None:
        """Leave the group, and drop all topics and partitions."""
        self._check_open()
        self._offsets.commit_last(set(self._given))
        self._native.unsubscribe()
        self._forget(self._native.assignment() | set(self._given))
        self._given.clear()

    @translating
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, each from its offset if it has one.

        In ``on_assign`` these are the partitions that the group has assigned.
        """
        self._check_open()
        chosen = {tp: each.offset for tp, each in zip(natives(partitions), partitions, strict=True)}
        if self._native.subscription():
            if self._listener.is_assigning and self._options.is_cooperative:
                raise failure("_STATE", _INCREMENTAL)
            self._restrict(chosen)
            return
        before = self._native.assignment()
        self._offsets.commit_last(before)
        self._forget(before)
        self._native.assign([])
        self._native.assign(chosen)
        self._given = dict(chosen)
        for tp, offset in chosen.items():
            self._start(tp, offset)

    @translating
    def unassign(self, *_: Any) -> None:
        """Read no partitions. In ``on_revoke`` there is nothing more to do."""
        self._check_open()
        if self._listener.is_revoking:
            return
        self.assign([])

    @translating
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions as well, each from its offset if it has one."""
        self._check_open()
        chosen = {tp: each.offset for tp, each in zip(natives(partitions), partitions, strict=True)}
        if self._native.subscription():
            present = self._native.assignment() - self._listener.new
            self._restrict({**dict.fromkeys(present, OFFSET_INVALID), **chosen})
            return
        if doubled := self._native.assignment() & chosen.keys():
            raise failure("_CONFLICT", f"{sorted(doubled)[0]} is already assigned")
        self._native.assign(self._native.assignment() | chosen.keys())
        self._given.update(chosen)
        for tp, offset in chosen.items():
            self._start(tp, offset)

    @translating
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions no more."""
        self._check_open()
        chosen = set(natives(partitions))
        if self._listener.is_revoking:
            return
        present = self._assigned()
        if missing := chosen - present:
            raise failure("_INVALID_ARG", f"{sorted(missing)[0]} is not assigned")
        if self._native.subscription():
            self._restrict(dict.fromkeys(present - chosen, OFFSET_INVALID))
            return
        self._offsets.commit_last(chosen)
        self._native.assign(present - chosen)
        self._forget(chosen)
        for tp in chosen:
            del self._given[tp]

    def _restrict(self, chosen: dict[NativePartition, int]) -> None:
        """Read only these partitions of those that the group has assigned."""
        present = self._native.assignment()
        if foreign := chosen.keys() - present:
            raise failure("_STATE", f"the group has not assigned {sorted(foreign)[0]}")
        left_out = present - chosen.keys()
        self._native.pause(*left_out, owner=_OWNER)
        self._rewind(left_out)
        self._native.resume(*chosen, owner=_OWNER)
        self._listener.left_out = left_out
        for tp, offset in chosen.items():
            if offset != OFFSET_INVALID:
                self._start(tp, offset)

    def _start(self, tp: NativePartition, offset: int) -> None:
        """Set the position of an assigned partition. Without an offset it is the committed one."""
        self._buffer.forget([tp])
        self._events.forget([tp])
        if offset >= 0:
            self._native.seek(tp, offset)
        elif offset == OFFSET_BEGINNING:
            self._native.seek_to_beginning(tp)
        elif offset == OFFSET_END:
            self._native.seek_to_end(tp)
        elif offset not in (OFFSET_STORED, OFFSET_INVALID):
            raise failure("_INVALID_ARG", f"offset {offset} is not valid")

    def _assigned(self) -> set[NativePartition]:
        return self._native.assignment() - self._listener.left_out

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        self._check_open()
        return [
            partition(*tp, self._given.get(tp, OFFSET_STORED)) for tp in sorted(self._assigned())
        ]

    @translating
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no messages of these partitions until ``resume()``."""
        self._check_open()
        chosen = set(natives(partitions)) & self._native.assignment()
        self._native.pause(*chosen)
        self._rewind(chosen)

    @translating
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return messages of these partitions again."""
        self._check_open()
        self._native.resume(*(set(natives(partitions)) & self._native.assignment()))

    def _rewind(self, partitions: Collection[NativePartition]) -> None:
        """Let kohort return the buffered messages of partitions again."""
        for tp, offset in self._buffer.drop(partitions).items():
            self._native.seek(tp, offset)
        self._events.forget(partitions)

    def _forget(self, partitions: Collection[NativePartition]) -> None:
        self._buffer.forget(partitions)
        self._events.forget(partitions)
        self._offsets.forget(partitions)

    # -- positions ----------------------------------------------------------------------------

    @translating
    def seek(self, partition: TopicPartition) -> None:
        """Continue at the offset of this partition, which must be assigned."""
        self._check_open()
        tp = native(partition)
        try:
            self._start(tp, partition.offset)
            if partition.offset in (OFFSET_STORED, OFFSET_INVALID):
                self._native.seek_to_committed(tp)
        except NotAssignedError as error:
            text = f"Failed to seek to offset {partition.offset}: Local: Erroneous state"
            raise failure("_STATE", text) from error

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the latest returned messages; OFFSET_INVALID before one."""
        self._check_open()
        found: list[TopicPartition] = []
        for tp in natives(partitions):
            last = self._buffer.last.get(tp)
            if last is None:
                found.append(partition(*tp))
            else:
                epoch = last.leader_epoch()
                found.append(
                    partition(*tp, last.offset() + 1, leader_epoch=-1 if epoch is None else epoch)
                )
        return found

    @translating
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset, and the offset after the last record.

        With ``cached`` both are those of the latest fetch, or OFFSET_INVALID before one.
        """
        self._check_open()
        tp = native(partition)
        if cached:
            return self._events.watermarks(tp)
        limit = _milliseconds(timeout)
        if tp.partition not in self._native.partitions_for_topic(tp.topic, limit):
            text = "Failed to get watermark offsets: Local: Unknown partition"
            raise failure("_UNKNOWN_PARTITION", text)
        low = self._native.beginning_offsets([tp], limit)[tp]
        return low, self._native.end_offsets([tp], limit)[tp]

    @translating
    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the first offsets at or after timestamps, which are the offsets that are given.

        The offset is OFFSET_END where there is no such record.
        """
        self._check_open()
        limit = _milliseconds(timeout)
        asked = list(zip(natives(partitions), partitions, strict=True))
        known = {
            topic: self._native.partitions_for_topic(topic, limit)
            for topic in {tp.topic for tp, _ in asked}
        }
        times = {tp: each.offset for tp, each in asked if tp.partition in known[tp.topic]}
        found = self._native.offsets_for_times(times, limit) if times else {}
        results: list[TopicPartition] = []
        for tp, each in asked:
            at = found.get(tp)
            if tp not in times:
                error = KafkaError(KafkaError._UNKNOWN_PARTITION)
                results.append(partition(*tp, each.offset, error=error))
            elif at is None:
                results.append(partition(*tp, OFFSET_END))
            else:
                results.append(partition(*tp, at.offset, leader_epoch=at.leader_epoch))
        return results

    # -- commits ------------------------------------------------------------------------------

    @translating
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or all stored offsets.

        It waits with ``asynchronous=False``, and returns what it committed.
        """
        self._check_open()
        chosen = _chosen_offsets(message, offsets)
        if asynchronous:
            self._offsets.commit_soon(chosen, self._assigned())
            return None
        done = self._offsets.commit(chosen)
        if done is None:
            raise failure("_NO_OFFSET", "Commit failed: Local: No offset stored")
        return done

    @translating
    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset after a message, or offsets, for the next commit.

        It needs ``enable.auto.offset.store=False``.
        """
        self._check_open()
        chosen = _chosen_offsets(message, offsets)
        if chosen is None:
            raise ValueError("expected either message or offsets")
        if self._options.auto_store:
            text = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise failure("_INVALID_ARG", text)
        if not chosen.keys() <= self._assigned():
            raise failure("_UNKNOWN_PARTITION", "StoreOffsets failed: Local: Unknown partition")
        self._offsets.store(chosen)

    @translating
    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the committed offsets of partitions; OFFSET_INVALID where there is none."""
        self._check_open()
        chosen = natives(partitions)
        found = self._native.committed(chosen, metadata=True, timeout_ms=_milliseconds(timeout))
        return [
            partition(*tp)
            if (at := found[tp]) is None
            else partition(
                *tp, at.offset, metadata=committed_metadata(at), leader_epoch=at.leader_epoch
            )
            for tp in chosen
        ]

    def consumer_group_metadata(self) -> Any:
        """Return the membership for ``Producer.send_offsets_to_transaction()``."""
        self._check_open()
        return group_metadata(self._native)

    def memberid(self) -> str | None:
        """Return the member id, or None before the consumer has joined."""
        self._check_open()
        return self._native.group_metadata().member_id or None

    # -- the cluster --------------------------------------------------------------------------

    @translating
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the brokers, topics and partitions of the cluster, or one topic alone."""
        self._check_open(HANDLE_CLOSED)
        with self._options.admin() as admin:
            return _metadata.cluster_metadata(admin, topic, _milliseconds(timeout))

    @translating
    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster."""
        self._check_open(HANDLE_CLOSED)
        with self._options.admin() as admin:
            return admin.describe_cluster(_milliseconds(timeout)).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the user and password of later logins by PLAIN or SCRAM."""
        self._check_open(HANDLE_CLOSED)
        if not isinstance(username, str) or not isinstance(password, str):
            raise TypeError("username and password must be str")
        if self._options.credentials is not None:
            self._options.credentials.pair = (username, password)

    # -- the end ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @translating
    def close(self) -> None:
        """Commit if that is automatic, call ``on_revoke``, and leave the group.

        It takes at most 5 seconds. It may be called again.
        """
        if self._closed:
            return
        try:
            if not self._native.subscription():
                self._offsets.commit_last(self._native.assignment())
            self._native.close()
        finally:
            self._closed = True
            if self._options.first_token is not None:
                self._options.first_token.stop()

    def _check_open(self, text: str = CLOSED) -> None:
        if self._closed:
            raise RuntimeError(text)


class _Listener:
    """The callbacks of subscribe(), for one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._callbacks: tuple[Callback | None, ...] = (None, None, None)
        self.is_assigning: bool = False
        self.is_revoking: bool = False
        self.new: set[NativePartition] = set()
        """Partitions that ``on_assign`` is being called with."""
        self.left_out: set[NativePartition] = set()
        """Assigned partitions that the program does not want to read."""

    def set(self, *callbacks: Callback | None) -> None:
        """Replace on_assign, on_revoke and on_lost."""
        self._callbacks = callbacks

    def on_partitions_assigned(self, assigned: Iterable[NativePartition]) -> None:
        """Call ``on_assign``. It may call assign() or incremental_assign() with offsets."""
        self.left_out = set()
        self.new, self.is_assigning = set(assigned), True
        try:
            self._call(self._callbacks[0], self.new)
        finally:
            self.new, self.is_assigning = set(), False

    def on_partitions_revoked(self, revoked: Collection[NativePartition]) -> None:
        """Drop the messages of these partitions, call ``on_revoke``, and commit."""
        self._consumer._buffer.drop(revoked)
        try:
            self._end(self._callbacks[1], revoked)
            self._consumer._offsets.commit_last(revoked)
        finally:
            self._consumer._forget(revoked)

    def on_partitions_lost(self, lost: Collection[NativePartition]) -> None:
        """Drop all of these partitions, and call ``on_lost``, or ``on_revoke`` without it."""
        self._consumer._forget(lost)
        self._end(self._callbacks[2] or self._callbacks[1], lost)

    def _end(self, callback: Callback | None, partitions: Iterable[NativePartition]) -> None:
        self.is_revoking = True
        try:
            self._call(callback, partitions)
        finally:
            self.is_revoking = False
            self.left_out -= set(partitions)

    def _call(self, callback: Callback | None, partitions: Iterable[NativePartition]) -> None:
        if callback is not None:
            callback(self._consumer, [partition(*tp) for tp in sorted(partitions)])


def _pattern_part(topic: str) -> str:
    return topic if topic.startswith("^") else f"^{re.escape(topic)}$"


def _chosen_offsets(message: Any, offsets: Any) -> Any:
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        if message.error() is not None:
            raise failure("_INVALID_ARG", f"the message is an error: {message.error().str()}")
        return from_message(message)
    return None if offsets is None else from_partitions(offsets)


def _limit(timeout: float) -> float:
    """Return a timeout in seconds; a negative one is none."""
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    return math.inf if timeout < 0 else timeout


def _milliseconds(timeout: float | None) -> float | None:
    """Return a timeout for kohort, which has a default for None."""
    limit = math.inf if timeout is None else _limit(timeout)
    return None if math.isinf(limit) else 1000 * limit
