"""The parts of both share consumers that neither wait nor send requests."""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from kohort.config import OPTIONS, SHARE_OPTIONS, ConsumerConfig, in_dotted_names
from kohort.consumer.api import _arguments
from kohort.consumer.api._observers import ObservedConsumer
from kohort.consumer.driver._driver import Driver, Plan
from kohort.consumer.driver._signal import ThreadSignal
from kohort.consumer.engine._callback_queue import CommitCallback
from kohort.consumer.engine._engine import Engine
from kohort.consumer.engine._observed import EndOfCall, Observed, Observer
from kohort.errors import (
    DataError,
    IllegalStateError,
    InvalidOptionError,
    KafkaError,
    UnsupportedOptionError,
)
from kohort.logs import get_logger
from kohort.records import mark_open
from kohort.share._delivery import PoisonPolicy, ShareDelivery
from kohort.share._record import ShareRecord, hold_of
from kohort.share.client._client import ShareClient
from kohort.share.client._locks import Locks, are_range
from kohort.share.client._settings import AcquireMode, ShareSettings
from kohort.share.machine._acquired import Acknowledgement, Hold
from kohort.types import LazyModule, MetricSample, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kohort.consumer.diagnosis import _explanation, _health
    from kohort.share import _diagnosis
else:
    pyarrow = LazyModule("pyarrow")
    _explanation = LazyModule("kohort.consumer.diagnosis._explanation")
    _health = LazyModule("kohort.consumer.diagnosis._health")

logger = get_logger("kohort.share")

T = TypeVar("T")

Failed: TypeAlias = dict[TopicPartition, dict[int, KafkaError]]
"""The acknowledgements that failed, with the error of each offset."""
ShareCommitCallback: TypeAlias = Callable[[Failed, KafkaError | None], object]
Records: TypeAlias = dict[TopicPartition, list[ShareRecord[Any, Any]]]

DEFAULT_WAIT_MS = 500
CALL_SECONDS: Final = 0.01
"""Last part of a poll in another thread than its client. It is a call, which raises errors."""
# Python 3.11 takes 0.1 us to find a member of an enum, and accept() runs for each record.
_ACCEPT: Final = Acknowledgement.ACCEPT
_RELEASE: Final = Acknowledgement.RELEASE
_REJECT: Final = Acknowledgement.REJECT
_RENEW: Final = Acknowledgement.RENEW
_TYPES = {
    "accept": _ACCEPT,
    "release": _RELEASE,
    "reject": _REJECT,
    "renew": _RENEW,
}
_WHY = {
    "auto_offset_reset": 'the group decides where it begins. Use start="earliest", or set '
    "share.auto.offset.reset of the group",
    "enable_auto_commit": "a share group commits no offsets. Use acknowledgement",
    "auto_commit_interval_ms": "a share group commits no offsets",
    "isolation_level": "the group decides it. Set share.isolation.level of the group",
    "group_instance_id": "share groups have no static members",
    "group_protocol": "share groups have one protocol",
    "group_remote_assignor": "the brokers choose the assignor of share groups",
    "partition_assignment_strategy": "the brokers assign the partitions of share groups",
    "session_timeout_ms": "the group decides it. Set share.session.timeout.ms of the group",
    "heartbeat_interval_ms": "the group decides it. Set share.heartbeat.interval.ms of the group",
}
"""Options of consumers that a share consumer refuses, with the reason."""
_MODES: Final = {
    "share.acknowledgement.mode": "implicit",
    "share.acquire.mode": "batch_optimized",
}
"""Properties that only share consumers have, with their defaults."""


class PollBlock:
    """The time in which a caller is inside a poll, for explain(), health() and an observer."""

    __slots__ = ("_end", "_observe", "_queue", "found")

    def __init__(self, driver: Driver, observe: Observer | None) -> None:
        self._queue = driver.engine.callback_queue
        self._observe = observe
        self._end: EndOfCall | None = None
        self.found: Observed | None = None
        """What the poll returns."""

    def __enter__(self) -> Self:
        if self._observe is not None:
            self._end = self._observe()
        self._queue.enter_poll()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._queue.leave_poll()
        if self._end is not None:
            is_empty = error is not None or self.found is None or not self.found.size
            self._end(None if is_empty else self.found, error)


class ShareBase(ObservedConsumer):
    """The methods of a share consumer without I/O, and what both share consumers have."""

    _driver: Driver

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> Driver:
        raise NotImplementedError  # each share consumer has it

    @classmethod
    def _from_properties(
        cls,
        properties: Mapping[str, Any],
        topics: tuple[str, ...],
        modes: tuple[Any, Any],
        key_deserializer: Any,
        value_deserializer: Any,
        on_error: PoisonPolicy | Callable[[DataError], str],
        start: str | None,
        unsupported: str,
    ) -> Self:
        """Return a share consumer with these properties, of which no traceback shows a secret."""
        config = ConsumerConfig.from_properties(
            _share_properties(properties, only_warn=unsupported == "warn"),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            unsupported=unsupported,
        )
        consumer = cls.__new__(cls)
        try:
            consumer._set_up(topics, config, *modes, on_error, start)
        except InvalidOptionError as error:
            wrong, cause = in_dotted_names(error, properties), error.__cause__
        else:
            return consumer
        raise wrong from cause

    def _set_up(
        self,
        topics: tuple[str, ...],
        config: ConsumerConfig,
        acknowledgement: str,
        acquire_mode: AcquireMode,
        on_error: PoisonPolicy | Callable[[DataError], str],
        start: str | None,
    ) -> None:
        _check_choice("acknowledgement", acknowledgement, ("implicit", "explicit"))
        _check_choice("acquire_mode", acquire_mode, ("batch_optimized", "record_limit"))
        _check_choice("start", start, (None, "earliest"))
        if not callable(on_error):
            _check_choice("on_error", on_error, ("reject", "release", "raise"))
        group, fetch, client = config.group, config.fetch, config.client
        if group.group_id is None:
            raise InvalidOptionError("a share consumer needs a group. Set the option group_id")
        self._settings = ShareSettings(
            group_id=group.group_id,
            acquire_mode=acquire_mode,
            start=start,
            rack=group.client_rack,
            max_records=fetch.max_poll_records,
            max_wait_ms=DEFAULT_WAIT_MS
            if fetch.fetch_max_wait_ms is None
            else fetch.fetch_max_wait_ms,
            min_bytes=fetch.fetch_min_bytes,
            max_bytes=fetch.fetch_max_bytes,
            request_timeout_ms=client.request_timeout_ms,
            max_poll_interval=group.max_poll_interval_ms / 1000,
        )
        # The engine of a consumer without a group: the membership is that of ShareClient.
        alone = dataclasses.replace(
            config,
            group=dataclasses.replace(group, group_id=None),
            client=dataclasses.replace(client, allow_auto_create_topics=False),
        )
        self._driver = driver = self._make_driver(alone)
        driver.life.what = "share consumer"
        driver.group_id = group.group_id
        driver.owner = weakref.ref(self)
        self._locks = Locks(lambda: driver.engine.callback_queue.clock())
        self._delivery = ShareDelivery(config, self._locks, on_error)
        self._client: ShareClient | None = None
        self._answered = ThreadSignal()
        """Wakes a poll in another thread than its client."""
        self._of_engine: Engine | None = None
        self._is_implicit = acknowledgement == "implicit"
        self._limit: int | None = None
        """Most records of the next poll, exactly; None for ``max_poll_records``."""
        self._topics: frozenset[str] = frozenset(_arguments.topic_names(topics))
        self._returned: Records = {}
        """Records of the latest poll, which the next call accepts in implicit mode."""
        self._returned_rows: list[tuple[TopicPartition, dict[int, Hold]]] = []
        """The same of the latest poll_arrow()."""
        self._queue: deque[ShareRecord[Any, Any]] = deque()
        """Records that iteration has still to return."""
        self._current: ShareRecord[Any, Any] | None = None
        """The latest record of the iteration."""
        self._note_opened()

    def __repr__(self) -> str:
        name, driver = type(self).__name__, getattr(self, "_driver", None)
        if driver is None:
            return f"<{name} without options>"
        topics = sorted(self._topics)
        return f"<{name} group={self._settings.group_id!r} topics={topics!r} {driver.life}>"

    # -- plans --------------------------------------------------------------------------------

    def _plan(self, function: Callable[[ShareClient], Awaitable[T]], seconds: float) -> Plan[T]:
        """Return a call of the client, which the first one creates."""

        async def run(engine: Engine) -> T:
            return await function(await self._client_of(engine))

        return Plan(run, (), seconds)

    async def _client_of(self, engine: Engine) -> ShareClient:
        """Return the client, which is started. It joins the group once a broker is reached."""
        if self._client is None or self._of_engine is not engine:
            self._client = ShareClient(engine, self._settings, self._locks)
            self._client.notify_caller = self._answered.notify
            self._of_engine = engine
        await self._client.start()
        self._client.subscribe(self._topics)
        return self._client

    def _left_of_wait(self, timeout: float) -> float | None:
        """Wait for records in another thread than the client, which needs no task for it.

        Return None if records are buffered. Otherwise a call has to wait for the seconds returned.
        The end of the client notifies this wait, unless it came before the check of ``is_running``.
        A call then raises the error.
        """
        client, driver, seconds = self._client, self._driver, timeout - CALL_SECONDS
        if client is None or driver.asynchronous or seconds <= 0 or client.topics != self._topics:
            return timeout
        callback_queue = driver.engine.callback_queue
        callback_queue.raise_wakeup()
        self._answered.clear()
        clock = self._locks.clock
        until = clock() + seconds
        client.limit = self._limit
        try:
            client.wanted_until = until
            driver.call_soon(client.look_for_poll)
            if client.is_running:
                self._answered.wait(seconds)
        finally:
            client.wanted_until = -math.inf
        if client.is_running and self._locks.has_buffered:
            return None
        callback_queue.raise_wakeup()
        return max(0.0, until - clock()) + CALL_SECONDS

    def _wait_plan(self, timeout: float) -> Plan[None]:
        """Return a wait for records or an error."""

        async def wait(engine: Engine) -> None:
            await (await self._client_of(engine)).wait(timeout, self._limit)

        return Plan(wait, (), timeout, is_wait=True)

    def _commit_plan(self, timeout_ms: float | None) -> Plan[None]:
        seconds = _arguments.timeout_seconds(timeout_ms)
        timeout = self._driver.request_seconds if seconds is None else seconds
        return self._plan(lambda client: client.commits.commit(timeout), timeout)

    def _group_configs_plan(self, seconds: float) -> Plan[dict[str, str | None]]:
        """Return a call that reads the configs of the group by name."""
        from kohort.share.client._group_config import group_configs

        group_id = self._settings.group_id

        async def run(engine: Engine) -> dict[str, str | None]:
            await engine.cluster_requests.wait_bootstrapped(self._driver.bootstrap_seconds())
            if self._client is None:  # otherwise it drops them at the first contact
                engine.errors.drop_outages()
            return await group_configs(engine, group_id, seconds)

        return Plan(run, (), seconds + self._driver.bootstrap_seconds())

    def _start_commit(
        self, finish: Callable[[KafkaError | None], None], callback: ShareCommitCallback | None
    ) -> None:
        """Begin a commit. A later call runs the callback."""
        self._driver.life.check_usable()
        client = self._client
        if client is None:
            raise IllegalStateError("commit_async() failed: call poll() first")
        self._finish_returned()
        queue = self._driver.engine.callback_queue

        def finished(error: KafkaError | None) -> None:
            if callback is not None:
                failed = self._locks.take_failures()
                called = CommitCallback(lambda _, error: callback(failed, error), {}, error)
                queue.add_commit_callback(called)
            finish(error)

        seconds = self._driver.request_seconds
        self._driver.call_soon(partial(client.commits.start, seconds, finished))

    def _polling(self) -> PollBlock:
        """Be inside a step of an iteration, which no observer sees."""
        return PollBlock(self._driver, None)

    def _observed_poll(self) -> PollBlock:
        """Be inside a poll that is observed. The block notes what it has found, if anything."""
        return PollBlock(self._driver, self._driver.observe_poll)

    def _note_call(self) -> None:
        """Note a call other than a poll that shows that the caller is alive."""
        if self._driver.life.is_started:
            self._driver.engine.callback_queue.note_call()

    def _check_subscribed(self) -> None:
        self._driver.life.check_usable()
        if not self._topics:
            raise IllegalStateError("the share consumer has no topics. Call subscribe() first")

    def _raise_errors(self) -> None:
        self._driver.engine.callback_queue.raise_wakeup()
        if self._delivery.errors:
            raise self._delivery.errors.pop(0)
        if self._client is not None and self._client.errors and not self._locks.has_buffered:
            raise self._client.errors.popleft()
        if errors := self._driver.engine.errors.waiting:
            with suppress(IndexError):  # the engine's thread has dropped it meanwhile
                raise errors.popleft()

    # -- records ------------------------------------------------------------------------------

    def _take(self) -> Records:
        """Return the buffered records by partition, or raise an error if there are none."""
        found = self._delivery.deliver(self._locks.take())
        if not found:
            self._raise_errors()
        return found

    def _take_rows(self) -> pyarrow.RecordBatch:
        """Return the buffered records as rows, or raise an error if there are none."""
        from kohort.consumer.driver._tables import TABLE_BYTES
        from kohort.records import MAX_ROWS, TablePlan, allocate_in_arrow

        plan = TablePlan(MAX_ROWS, TABLE_BYTES, allocate=allocate_in_arrow)
        found = self._delivery.deliver_rows(self._locks.take(), plan)
        if not found:
            self._raise_errors()
        self._returned_rows = found.holds
        return found.build()

    def _finish_returned(self) -> None:
        """Accept what the caller has processed, in implicit mode."""
        returned, self._returned = self._returned, {}
        rows, self._returned_rows = self._returned_rows, []
        current, self._current = self._current, None
        if self._is_implicit:
            # With a current record nothing else is returned.
            for records in returned.values() if current is None else ([current],):
                self._accept_rest(records)
            for _, holds in rows:
                self._locks.mark_rest(holds, _ACCEPT)
            self._hasten()

    def _hasten(self) -> None:
        """Let marks be sent whose locks may end before the engine would send them."""
        locks, client = self._locks, self._client
        if locks.has_urgent and client is not None:
            locks.has_urgent = False
            self._driver.call_threadsafe(client.look)

    def _accept_rest(self, records: list[ShareRecord[Any, Any]]) -> None:
        """Accept the records that have no mark yet."""
        hold = hold_of(records[0]) if records else None
        if (
            hold is None
            or not are_range(records, hold.first, hold.last)
            or not self._locks.mark_whole(hold, _ACCEPT)
        ):
            holds = {record.offset: hold_of(record) for record in records}
            self._locks.mark_rest(holds, _ACCEPT)

    def _has_lost(self, record: ShareRecord[Any, Any]) -> bool:
        """Return True if the lock of a record has ended with its session or its leader."""
        return record.offset in hold_of(record).lost

    def _mark(self, record: ShareRecord[Any, Any], type: Acknowledgement) -> bool:
        return self._locks.mark(record.offset, hold_of(record), type)

    def _release_current(self) -> None:
        """Release the record at which an iteration was left."""
        current, self._current = self._current, None
        if current is not None and self._is_implicit:
            holds = {current.offset: hold_of(current)}
            self._locks.mark_rest(holds, _RELEASE)

    def _release_queued(self) -> None:
        """Release the records that no iteration has returned."""
        while self._queue:
            self._mark(self._queue.popleft(), _RELEASE)

    def _next_queued(self) -> ShareRecord[Any, Any] | None:
        """Return the next record of the iteration. Records that waited too long are released."""
        while self._queue:
            record = self._queue.popleft()
            if self._locks.is_fresh(record.offset, hold_of(record)):
                return record
            self._mark(record, _RELEASE)
        return None

    def _queued_by_partition(self) -> Records:
        found: Records = {}
        while (record := self._next_queued()) is not None:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    def _extend_queue(self, records: Records) -> None:
        for each in records.values():
            self._queue.extend(each)

    # -- acknowledgements ---------------------------------------------------------------------

    def accept(self, *records: ShareRecord[Any, Any]) -> None:
        """Note that records are done. The next poll or commit sends it.

        A record whose lock has expired is not sent, and the next commit() names it. Raises
        IllegalStateError if the acknowledgement of a record was sent before.
        """
        if not mark_open(records, self._locks, _ACCEPT):
            self._acknowledge(records, _ACCEPT)

    def release(self, *records: ShareRecord[Any, Any]) -> None:
        """Give records back, so that the group delivers them again, at once and to any member.

        A record that has had all its deliveries is archived instead. Errors are those of
        :meth:`accept`.
        """
        self._acknowledge(records, _RELEASE)

    def reject(self, *records: ShareRecord[Any, Any]) -> None:
        """Archive records that cannot be processed. Brokers may copy them to a dead letter queue.

        Errors are those of :meth:`accept`.
        """
        self._acknowledge(records, _REJECT)

    def renew(self, *records: ShareRecord[Any, Any]) -> None:
        """Let the lock of records begin again when the next poll or commit sends it (KIP-1222).

        The records stay with the caller, who accepts them later. Needs brokers of Kafka 4.2.
        Errors are those of :meth:`accept`.
        """
        self._acknowledge(records, _RENEW)

    def acknowledge(self, partition: TopicPartition, offset: int, type: str = "accept") -> None:
        """Acknowledge a record by its offset, as ``accept``, ``release``, ``reject`` or ``renew``.

        Raises IllegalStateError if this consumer holds no lock of the offset.
        """
        self._driver.life.check_usable_for_mark()
        _check_choice("type", type, tuple(_TYPES))
        tp = _arguments.topic_partition(partition)
        hold = self._locks.find(tp, _arguments.offset(offset))
        if hold is None or not self._locks.mark(offset, hold, _TYPES[type]):
            raise IllegalStateError(
                f"this consumer holds no lock of {tp.topic}-{tp.partition} offset {offset}"
            )
        self._hasten()

    def _acknowledge(self, records: Iterable[ShareRecord[Any, Any]], type: Acknowledgement) -> None:
        self._driver.life.check_usable_for_mark()
        mark = self._locks.mark
        try:
            for record in records:
                if not isinstance(record, ShareRecord):
                    raise TypeError(f"expected a ShareRecord, not {record!r}")
                if not mark(record.offset, hold_of(record), type):
                    raise IllegalStateError(
                        f"{record.topic}-{record.partition} offset {record.offset} is "
                        "acknowledged already, or another consumer has acquired it"
                    )
        finally:
            self._hasten()

    # -- state without I/O --------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics, in place of earlier ones. The next poll joins the group.

        Raises ValueError for no or illegal topics.
        """
        self._driver.life.check_usable()
        names = _arguments.topic_names(topics)
        if not names:
            raise ValueError("subscribe() needs topics. Call unsubscribe() to end a subscription")
        self._topics = frozenset(names)

    def subscription(self) -> set[str]:
        """Return a copy of the subscribed topics. No I/O."""
        self._driver.life.check_process()
        return set(self._topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that the group wants this member to read. No I/O.

        Other members may read the same partitions.
        """
        self._driver.life.check_process()
        if self._client is None:
            return set()
        metadata = self._driver.engine.cluster.metadata
        found = set()
        for topic_id, number in self._client.membership.assignment:
            topic = metadata.topic_by_id(topic_id)
            if topic is not None:
                found.add(TopicPartition(topic.name, number))
        return found

    def held(self) -> int:
        """Return how many acquired records this consumer has not finished. No I/O."""
        self._driver.life.check_process()
        return self._locks.counts()[0]

    def explain(self) -> _explanation.Explanation:
        """Return the reasons why no records arrive. No I/O.

        The result is that of a :class:`~kohort.KafkaConsumer`, with the locks in ``shares``. It may
        be called at any time, and on ShareConsumer from any thread.
        """
        from kohort.share._diagnosis import collect_facts

        life, processing = self._driver.life, self._driver.processing
        facts = collect_facts(
            self._parts(),
            started=life.is_started,
            closed=life.is_closed,
            processing=None if processing is None else processing(),
        )
        return _explanation.Explanation(facts)

    def health(self) -> _health.Health:
        """Return whether the process is live and its consumer ready, with the reasons. No I/O.

        The rules are those of a :class:`~kohort.KafkaConsumer`. A share consumer is ready when the
        group has accepted it, also without partitions. ``commit()`` counts as a poll. It may be
        called at any time, and on ShareConsumer from any thread.
        """
        life = self._driver.life
        life.check_process()
        return _health.assess(
            self.explain(),
            has_assignment=self._client is not None
            and self._client.membership.joined_at is not None,
            ending=life.is_ending,
            failure=life.failure,
        )

    def metrics(self) -> dict[str, dict[str, float]] | None:
        """Return ``{group: {name: value}}``, or None if ``metrics_enabled=False``. No I/O.

        docs/reference/metrics.md lists the names. There is no lag, which no member of a share group
        knows.
        """
        from kohort.share._diagnosis import collect_metrics

        self._driver.life.check_process()
        return collect_metrics(self._parts()) if self._driver.config.metrics_enabled else None

    def metric_samples(self) -> list[MetricSample]:
        """Return the figures of metrics() with labels, for a monitoring system. No I/O.

        The labels are ``client_id`` and ``group_id``. The list is empty if
        ``metrics_enabled=False``.
        """
        from kohort.consumer.diagnosis._metrics import labelled

        client_id, found = self._driver.config.client.client_id, self.metrics()
        return [] if found is None else labelled(found, client_id, self._settings.group_id)

    def _parts(self) -> _diagnosis.ShareParts:
        """Return the parts that metrics() and explain() read."""
        from kohort.share._diagnosis import ShareParts

        return ShareParts(
            self._driver.engine.parts,
            self._settings,
            self._locks,
            self._client,
            self._topics,
            "implicit" if self._is_implicit else "explicit",
            self.assignment(),
            self._delivery.delivered,
            tuple(self._delivery.errors),
        )

    def lock_seconds(self) -> float:
        """Return the duration of a lock in seconds, as of the latest response. No I/O.

        It is 30 before the first response.
        """
        return self._locks.seconds


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        expected = ", ".join(map(repr, choices))
        raise InvalidOptionError(f"{name}={value!r}: expected one of {expected}")


def share_config(options: Mapping[str, Any]) -> ConsumerConfig:
    """Return the options. Raise UnsupportedOptionError for those that have no meaning here."""
    for name in options:
        if name in OPTIONS and name not in SHARE_OPTIONS:
            raise _unsupported(name, name)
    return ConsumerConfig.from_kwargs(**options)


def share_modes(properties: object) -> tuple[Any, Any]:
    """Return the modes of acknowledging and acquiring that properties have, or the defaults."""
    given = properties if isinstance(properties, Mapping) else {}
    acknowledgement, acquire = ((given.get(name) or each) for name, each in _MODES.items())
    return acknowledgement, acquire


def _share_properties(properties: Mapping[str, Any], *, only_warn: bool) -> Mapping[str, Any]:
    """Return the properties that a consumer has, too, without those that have no meaning here.

    Raise UnsupportedOptionError for these, or log them.
    """
    if not isinstance(properties, Mapping):
        return properties  # ConsumerConfig raises its error
    names = {dotted: each.name for each in OPTIONS.values() for dotted in each.properties}
    found = {}
    for given, value in properties.items():
        name = names.get(given)
        if given in _MODES:
            continue
        if name is None or name in SHARE_OPTIONS or value is None:
            found[given] = value
        elif only_warn:
            logger.warning("%s", str(_unsupported(given, name)))
        else:
            raise _unsupported(given, name)
    return found


def _unsupported(given: str, name: str) -> UnsupportedOptionError:
    why = _WHY.get(name, "it has no meaning for a share consumer: leave it out")
    return UnsupportedOptionError(f"{given} is not supported by share consumers: {why}")
