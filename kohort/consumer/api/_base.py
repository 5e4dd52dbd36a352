"""The methods that both APIs share: they neither wait nor send requests."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from kohort.config import ConsumerConfig, in_dotted_names
from kohort.consumer.api import _arguments
from kohort.consumer.api._observers import ObservedConsumer
from kohort.consumer.driver._driver import Driver
from kohort.errors import (
    IllegalStateError,
    InvalidOptionError,
    NotAssignedError,
    TopicAuthorizationFailedError,
)
from kohort.listeners._dispatch import check_listener
from kohort.subscription import OffsetReset
from kohort.types import (
    ConsumerGroupMetadata,
    LazyModule,
    MetricSample,
    OffsetAndMetadata,
    SubscriptionPattern,
    TopicPartition,
)

if TYPE_CHECKING:
    from kohort.consumer.diagnosis import _explanation, _health
    from kohort.coordinator_client import MembershipSnapshot
else:
    _explanation = LazyModule("kohort.consumer.diagnosis._explanation")
    _health = LazyModule("kohort.consumer.diagnosis._health")


class ConsumerBase(ObservedConsumer):
    """The methods of a consumer that do no I/O. They may be called before it has started.

    Both consumers have them. Each has a driver, which does all that waits.
    """

    @classmethod
    def _from_properties(
        cls,
        properties: Mapping[str, Any],
        topics: tuple[str, ...],
        key_deserializer: Any,
        value_deserializer: Any,
        unsupported: str,
    ) -> Self:
        """Return a consumer with these properties, of which no traceback shows a secret."""
        config = ConsumerConfig.from_properties(
            properties,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            unsupported=unsupported,
        )
        consumer = cls.__new__(cls)
        try:
            consumer._set_up(config, topics)
        except InvalidOptionError as error:
            wrong, cause = in_dotted_names(error, properties), error.__cause__
        else:
            return consumer
        raise wrong from cause

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> Driver:
        raise NotImplementedError  # each consumer has it

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        self._driver = driver = self._make_driver(config)
        driver.owner = weakref.ref(self)
        self._record_run = driver.record_run
        if topics:
            driver.engine.subscription.subscribe(_arguments.topic_names(topics))
        self._note_opened()

    # -- guards -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        # Debuggers show consumers that are half made, closed, or copied by fork(). No lock is
        # taken here.
        name, driver = type(self).__name__, getattr(self, "_driver", None)
        if driver is None:
            return f"<{name} without options>"
        group_id = driver.config.group.group_id
        group = "" if group_id is None else f" group={group_id!r}"
        return f"<{name}{group} {driver.engine.subscription!r} {driver.life}>"

    # -- subscription -------------------------------------------------------------------------

    def _subscribe(self, topics: Iterable[str], pattern: object, listener: Any) -> None:
        self._driver.life.check_usable()
        if listener is not None:
            check_listener(listener, asynchronous=self._driver.asynchronous)
        if pattern is not None and topics:
            raise IllegalStateError("subscribe() accepts topics or a pattern, not both")
        subscription = self._driver.engine.subscription
        is_first = not subscription.is_subscribed
        replaces = self._driver.life.is_unsubscribing
        if isinstance(pattern, SubscriptionPattern):
            self._check_broker_pattern()
            chosen = _arguments.broker_pattern(pattern)
            subscription.subscribe_broker_pattern(chosen, replaces=replaces)
        elif pattern is not None:
            subscription.subscribe_pattern(_arguments.topic_pattern(pattern), replaces=replaces)
        else:
            names = _arguments.topic_names(topics)
            if not names:
                raise ValueError(
                    "subscribe() needs topics or a pattern. Call unsubscribe() to end a "
                    "subscription"
                )
            subscription.subscribe(names, replaces=replaces)
        self._driver.callback_runner.listener = listener
        self._driver.engine.note_subscribe(has_listener=listener is not None)
        self._driver.engine.errors.drop(TopicAuthorizationFailedError)
        self._driver.call_soon(self._driver.engine.apply_new_subscription)
        self._driver.note_subscribed(is_first=is_first)

    def _check_broker_pattern(self) -> None:
        """Raise IllegalStateError if no broker would evaluate a SubscriptionPattern."""
        group = self._driver.config.group
        if group.group_id is None:
            raise IllegalStateError(
                "a SubscriptionPattern needs a group, because the coordinator evaluates it. Set "
                "the option group_id, or use a compiled pattern"
            )
        if group.group_protocol == "classic":
            raise IllegalStateError(
                "a SubscriptionPattern needs the consumer protocol, and group_protocol is "
                '"classic". Set it to "consumer" or "auto", or use a compiled pattern'
            )
        if names := group.classic_only_options:
            raise IllegalStateError(
                "a SubscriptionPattern needs the consumer protocol, and the consumer is classic "
                f"because of {' and '.join(names)}. Leave that out, or use a compiled pattern"
            )

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Request a rebalance of the group at the next poll(), unless one is running (KIP-568).

        ``reason`` is sent to the coordinator (KIP-800) and logged. Raises IllegalStateError if the
        consumer is not subscribed in a group.
        """
        self._driver.life.check_usable()
        self._require_group()
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {reason!r}")
        _arguments.text(reason or "", "reason")
        if not self._driver.engine.subscription.is_subscribed:
            raise IllegalStateError(
                "enforce_rebalance() failed: the consumer is not in a group. Call subscribe() first"
            )
        self._driver.engine.note_rejoin(reason or "enforce_rebalance() was called")
        self._driver.call_soon(self._driver.engine.apply_subscription)

    def subscription(self) -> set[str]:
        """Return a copy of the subscribed topics; empty without a subscription. No I/O."""
        self._driver.life.check_process()
        subscription = self._driver.engine.subscription
        return set(subscription.topics()) if subscription.is_subscribed else set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, without a group; no partitions remove the assignment.

        It replaces an earlier assign(), whose consumed offsets are committed in the background if
        commits are automatic. With a ``group_id``, commits still go to that group. Raises
        IllegalStateError after subscribe().
        """
        self._driver.life.check_usable()
        chosen = _arguments.topic_partitions(partitions)
        if self._driver.life.is_started:
            self._driver.engine.auto_commit.keep_replaced()
        if chosen or self._driver.engine.subscription.is_subscribed:  # after subscribe() it raises
            self._driver.engine.subscription.assign(chosen)
        else:
            self._driver.engine.subscription.unsubscribe()
        self._driver.engine.errors.drop(TopicAuthorizationFailedError)
        self._driver.call_soon(self._driver.engine.apply_new_subscription)

    def assignment(self) -> set[TopicPartition]:
        """Return a copy of the partitions that the group or assign() has assigned. No I/O."""
        self._driver.life.check_process()
        return set(self._driver.engine.subscription.assigned())

    def pause(self, *partitions: TopicPartition, owner: str | None = None) -> None:
        """Return no records of these partitions until :meth:`resume`.

        Buffered records are kept. ``owner`` is the name of a library that pauses partitions of its
        own accord. Each owner, and the program without a name, resumes only its own pauses. A
        revocation ends all pauses of a partition. Raises NotAssignedError for a partition that is
        not assigned.
        """
        self._driver.life.check_usable()
        chosen = _arguments.topic_partitions(partitions)
        self._driver.engine.subscription.pause(chosen, _arguments.owner(owner))

    def paused(self) -> set[TopicPartition]:
        """Return a copy of the assigned partitions that any owner pauses. No I/O."""
        self._driver.life.check_process()
        return set(self._driver.engine.subscription.paused())

    def resume(self, *partitions: TopicPartition, owner: str | None = None) -> None:
        """Return records of these partitions again after :meth:`pause` with the same owner.

        Partitions that another owner pauses remain paused. Raises NotAssignedError for a partition
        that is not assigned.
        """
        self._driver.life.check_usable()
        chosen = _arguments.topic_partitions(partitions)
        self._driver.engine.subscription.resume(chosen, _arguments.owner(owner))
        self._driver.engine.callback_queue.notify()  # another task may wait for buffered records
        self._driver.call_soon(self._driver.engine.fetcher.wake)

    def seek(self, partition: TopicPartition, offset: int, *, until: int | None = None) -> None:
        """Set the position, so that the next record returned has this offset or a later one.

        Committed offsets do not change. ``until`` is for callers that read a bounded range: the
        consumer fetches no record from that offset on, until the next seek. Records after it may
        still be returned if they are in the same batch as an earlier record.

        Raises NotAssignedError for a partition that is not assigned, and ValueError for a
        negative offset.
        """
        self._driver.life.check_usable()
        tp = _arguments.topic_partition(partition)
        end = None if until is None else _arguments.offset(until, "until")
        self._driver.engine.subscription.seek(tp, _arguments.offset(offset), until=end)
        self._driver.call_soon(self._driver.engine.fetcher.wake)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set the position to the first offset, which the next poll() looks up.

        Without arguments it applies to all assigned partitions. Raises NotAssignedError.
        """
        self._reset(partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set the position to the log end offset, which the next poll() looks up.

        Without arguments it applies to all assigned partitions. Raises NotAssignedError.
        """
        self._reset(partitions, OffsetReset.LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], strategy: OffsetReset) -> None:
        self._driver.life.check_usable()
        for tp in self._assigned_or(partitions):
            self._driver.engine.subscription.request_reset(tp, strategy)
        self._driver.call_soon(self._driver.engine.fetcher.wake)

    def _assigned_or(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        """Return the partitions given, or all assigned ones.

        Raise NotAssignedError if one of them is not assigned, or if there are none.
        """
        assigned = self._driver.engine.subscription.assigned()
        chosen = _arguments.topic_partitions(partitions) or sorted(assigned)
        if not chosen:
            raise NotAssignedError("no partitions are assigned")
        self._check_assigned(chosen)
        return chosen

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = self._driver.engine.subscription.assigned()
        for tp in partitions:
            if tp not in assigned:
                raise NotAssignedError(f"{tp.topic}-{tp.partition} is not assigned")

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record for each assigned partition. No I/O.

        Partitions whose position is not known yet are left out.
        """
        found = self._driver.engine.subscription.snapshot().partitions
        return {tp: at.position for tp, at in found.items() if at.position is not None}

    # -- state without I/O --------------------------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the latest fetch, or None before the first. No I/O.

        It is the offset after the last replicated record. Raises NotAssignedError.
        """
        self._driver.life.check_process()
        return self._driver.engine.subscription.high_watermark(
            _arguments.topic_partition(partition)
        )

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the latest fetch, or None before the first. No I/O.

        It is -1 with ``isolation_level="read_uncommitted"``. Raises NotAssignedError.
        """
        self._driver.life.check_process()
        tp = _arguments.topic_partition(partition)
        offset = self._driver.engine.subscription.last_stable_offset(tp)
        committed = self._driver.config.fetch.isolation_level == "read_committed"
        return offset if committed or offset is None else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the latest fetch response, or None before the first. No I/O.

        The time is in milliseconds since the epoch. Raises NotAssignedError.
        """
        self._driver.life.check_process()
        tp = _arguments.topic_partition(partition)
        self._check_assigned([tp])
        fetched = self._driver.engine.fetcher.fetched_at(tp)
        if fetched is None:
            return None
        now = (self._driver.config.wall_clock or time.time)()
        return int((now - (self._driver.engine.callback_queue.clock() - fetched)) * 1000)

    def known_partitions(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, or None if they are not known yet. No I/O.

        The cluster metadata has subscribed and assigned topics, and with a pattern all topics.
        """
        self._driver.life.check_process()
        (name,) = _arguments.topic_names([topic])
        return set(self._driver.engine.cluster.metadata.partitions_for(name)) or None

    def bootstrap_connected(self) -> bool:
        """Return True if the consumer has reached the cluster and is not closed. No I/O."""
        self._driver.life.check_process()
        return not self._driver.life.is_closed and self._driver.engine.cluster.bootstrapped

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return group id, generation, member id and instance id as last known. No I/O.

        A transactional producer needs them to commit offsets (KIP-447). Without a group all
        fields have their defaults.
        """
        self._driver.life.check_process()
        group = self._driver.config.group
        if self._driver.engine.coordinator is None:
            return ConsumerGroupMetadata()
        now = self._driver.engine.coordinator.snapshot()
        return ConsumerGroupMetadata(
            group.group_id,
            now.generation_id,
            now.member_id,
            group.group_instance_id,
            _group_state(now),
        )

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return the lag of each assigned partition in offsets, as of its latest fetch. No I/O.

        It is None before the first fetch or position. With read_committed it is counted to the
        last stable offset, where the first open transaction begins.
        """
        from kohort.consumer.diagnosis._metrics import lags

        self._driver.life.check_process()
        return lags(self._driver.engine.parts)

    def explain(self) -> _explanation.Explanation:
        """Return the reasons why no records arrive and why the group rebalanced. No I/O.

        ``print(consumer.explain())`` shows them as text, ``.as_dict()`` returns all values for a
        log. It may be called at any time, and on KafkaConsumer from any thread.
        """
        from kohort.consumer.diagnosis._diagnosis import collect_diagnosis

        life, processing = self._driver.life, self._driver.processing
        facts = collect_diagnosis(
            self._driver.engine.parts,
            started=life.is_started,
            closed=life.is_closed,
            processing=None if processing is None else processing(),
        )
        return _explanation.Explanation(facts)

    def health(self) -> _health.Health:
        """Return whether the process is live and its consumer ready, with the reasons. No I/O.

        ``live`` is False only if a restart helps. Examples are an error that has ended the
        consumer, and no call of poll() for ``max_poll_interval_ms``. ``ready`` is True from the
        first completed assignment to the beginning of the stop. A rebalance and brokers that are
        away change neither afterwards. docs/kubernetes.md has all rules.

        It may be called at any time, and on KafkaConsumer from any thread. ``kohort.health`` serves
        it to the probes of a platform.
        """
        life, engine = self._driver.life, self._driver.engine
        life.check_process()
        return _health.assess(
            self.explain(),
            has_assignment=engine.has_first_assignment,
            ending=life.is_ending or life.close_request is not None,
            failure=life.failure,
        )

    def metrics(self) -> dict[str, dict[str, float]] | None:
        """Return ``{group: {name: value}}``, or None if ``metrics_enabled=False``. No I/O.

        docs/reference/metrics.md lists the names.
        """
        from kohort.consumer.diagnosis._metrics import collect

        self._driver.life.check_process()
        return collect(self._driver.engine.parts) if self._driver.config.metrics_enabled else None

    def metric_samples(self) -> list[MetricSample]:
        """Return the figures of metrics() with labels, for a monitoring system. No I/O.

        The labels are ``client_id``, ``group_id`` in a group, and ``topic`` and ``partition`` of a
        partition. The list is empty if ``metrics_enabled=False``.
        """
        from kohort.consumer.diagnosis._metrics import collect_samples

        self._driver.life.check_process()
        return (
            collect_samples(self._driver.engine.parts)
            if self._driver.config.metrics_enabled
            else []
        )

    # -- offsets to commit --------------------------------------------------------------------

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, object] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._driver.engine.coordinator is None:
            raise IllegalStateError("commit() needs a group. Set the option group_id")
        if offsets is None:
            return self._driver.engine.subscription.positions_for_commit()
        return self._driver.engine.subscription.with_epochs(_arguments.commit_offsets(offsets))

    def _seek_to(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        for tp, offset in offsets.items():
            if offset is not None:
                self.seek(tp, offset)

    def _require_group(self) -> None:
        if self._driver.engine.coordinator is None:
            raise IllegalStateError("this call needs a group. Set the option group_id")


def _group_state(group: MembershipSnapshot) -> str:
    """Return kafka-python's name of the membership's state."""
    if group.is_stable:
        return "<stable>"
    return "<unjoined>" if group.generation_id < 0 else "<rebalancing>"
