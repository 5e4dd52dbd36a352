"""What both faces share: everything that neither waits nor talks to a broker."""

from __future__ import annotations

import logging
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from kohort.config import ConsumerConfig, in_dotted_names
from kohort.consumer import _arguments
from kohort.consumer._callback_runner import CallbackRunner
from kohort.consumer._diagnosis import collect_diagnosis
from kohort.consumer._drain_size import DrainSize
from kohort.consumer._engine import Engine
from kohort.consumer._explanation import Explanation
from kohort.consumer._iteration_buffer import IterationBuffer
from kohort.consumer._metrics import collect, lags
from kohort.errors import (
    ConsumerClosedError,
    ForkedConsumerError,
    IllegalStateError,
    InvalidOptionError,
    NotAssignedError,
    TopicAuthorizationFailedError,
)
from kohort.listeners._dispatch import check_listener
from kohort.records import RecordRun
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.coordinator_client import MembershipSnapshot

logger = logging.getLogger("kohort.consumer")

_LEAVE_SHARE = 0.8
"""Share of the time for closing that the commit and the leaving get. The rest ends the core."""


def leave_timeout(limit: float) -> float:
    """How much of the time for closing may go before the core is ended."""
    return limit * _LEAVE_SHARE


if TYPE_CHECKING:
    import typing_extensions  # with defaults of type variables, as in Python 3.13

    K = typing_extensions.TypeVar("K", default=Any)
    V = typing_extensions.TypeVar("V", default=Any)
else:
    K, V = TypeVar("K"), TypeVar("V")


class ConsumerBase:
    """The plain methods of a consumer. They may be called before it has started."""

    _asynchronous = False
    _close_hint = "call close(), or use a with block"
    _config: ConsumerConfig
    _engine: Engine
    _iteration_buffer: IterationBuffer
    _record_run: RecordRun
    """The records that iteration takes without looking at anything else."""
    _callback_runner: CallbackRunner
    _drain_size: DrainSize
    _is_unsubscribing = False
    """True from an unsubscribe() until the listener has been called for it (async API)."""
    _closed: bool
    _left_with_error: bool
    """An exception leaves the block: the caller may not be done with what it was given last."""
    _pid: int | None

    @classmethod
    def _from_properties(
        cls,
        properties: Mapping[str, Any],
        topics: tuple[str, ...],
        key_deserializer: Any,
        value_deserializer: Any,
    ) -> Self:
        """Return a consumer with these properties, of which no traceback shows a secret."""
        config = ConsumerConfig.from_properties(
            properties, key_deserializer=key_deserializer, value_deserializer=value_deserializer
        )
        consumer = cls.__new__(cls)
        try:
            consumer._set_up(config, topics)
        except InvalidOptionError as error:
            wrong, cause = in_dotted_names(error, properties), error.__cause__
        else:
            return consumer
        raise wrong from cause

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        raise NotImplementedError  # each face

    def _prepare(self, config: ConsumerConfig, engine: Engine, topics: tuple[str, ...]) -> None:
        self._config = config
        self._engine = engine
        consumer = weakref.proxy(self)
        self._iteration_buffer = IterationBuffer(
            engine.subscription, lambda: consumer._engine.may_deliver(), engine.callback_queue.clock
        )
        self._record_run = self._iteration_buffer.run
        deserializes = config.deserialize_key is not None or config.deserialize_value is not None
        self._drain_size = DrainSize(
            config.fetch.max_poll_records, deserializes=deserializes, timed=self._asynchronous
        )
        self._closed = False
        self._left_with_error = False
        self._pid = None
        if topics:
            engine.subscription.subscribe(_arguments.topic_names(topics))

    # -- guards -------------------------------------------------------------------------------

    def _check_process(self) -> None:
        if self._pid is not None and self._pid != os.getpid():
            raise ForkedConsumerError(
                "this consumer was started before fork() and cannot be used in the child process: "
                "its connections and its thread belong to the parent. Make a new one here"
            )

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise ConsumerClosedError("the consumer is closed; make a new one")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: it owns connections. Pass its "
            "options, and make a consumer where it is used"
        )

    def _warn_unclosed(self) -> None:
        warnings.warn(
            f"a {type(self).__name__} was not closed: {self._close_hint}",
            ResourceWarning,
            stacklevel=3,
        )

    def _call_soon(self, action: Callable[[], object]) -> None:
        """Run something in the core; nothing before it has started: it looks for itself then."""
        if self._pid is not None:
            self._engine.callback_queue.engine_loop.call_soon(action)

    # -- subscription -------------------------------------------------------------------------

    def _subscribe(self, topics: Iterable[str], pattern: object, listener: Any) -> None:
        self._check_usable()
        if listener is not None:
            check_listener(listener, asynchronous=self._asynchronous)
        if pattern is not None and topics:
            raise IllegalStateError("subscribe() takes topics or a pattern, not both")
        subscription = self._engine.subscription
        if pattern is not None:
            subscription.subscribe_pattern(
                _arguments.topic_pattern(pattern), replaces=self._is_unsubscribing
            )
        else:
            names = _arguments.topic_names(topics)
            if not names:
                raise ValueError("subscribe() needs topics or a pattern; see unsubscribe()")
            subscription.subscribe(names, replaces=self._is_unsubscribing)
        self._callback_runner.listener = listener
        self._engine.has_listener = listener is not None
        self._engine.resubscribed = True
        self._engine.callback_queue.drop_errors(TopicAuthorizationFailedError)
        self._call_soon(self._engine.apply_new_subscription)

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance at the next poll(), unless it does already (KIP-568).

        The reason goes to the coordinator (KIP-800) and to the logs. IllegalStateError without a
        subscription in a group.
        """
        self._check_usable()
        self._require_group()
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {reason!r}")
        if not self._engine.is_subscribed:
            raise IllegalStateError("there is no group to rebalance: subscribe() first")
        self._engine.rejoin_reason = reason or "enforce_rebalance() was called"
        self._call_soon(self._engine.apply_subscription)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_usable()
        self._engine.subscription.assign(_arguments.topic_partitions(partitions))
        self._engine.callback_queue.drop_errors(TopicAuthorizationFailedError)
        self._call_soon(self._engine.apply_new_subscription)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are assigned now, by the group or by assign(); a copy."""
        self._check_process()
        return set(self._engine.subscription.assigned())

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until resume(); what is buffered is kept. NotAssignedError."""
        self._check_usable()
        self._engine.subscription.pause(_arguments.topic_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused; a copy."""
        self._check_process()
        return set(self._engine.subscription.paused())

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these again. NotAssignedError."""
        self._check_usable()
        self._engine.subscription.resume(_arguments.topic_partitions(partitions))
        self._engine.callback_queue.notify()  # another task may wait for buffered records
        self._call_soon(self._engine.fetcher.wake)

    def seek(self, partition: TopicPartition, offset: int, *, until: int | None = None) -> None:
        """Continue at this offset, whatever is committed. NotAssignedError, ValueError.

        From the offset ``until`` on nothing is fetched, up to the next seek: for who reads a range.
        What a broker sends along with the last record before it is returned all the same.
        """
        self._check_usable()
        tp = _arguments.topic_partition(partition)
        end = None if until is None else _arguments.offset(until, "until")
        self._engine.subscription.seek(tp, _arguments.offset(offset), until=end)
        self._call_soon(self._engine.fetcher.wake)

    def _assigned_or(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        """The partitions named, or all that are assigned; each must be."""
        assigned = self._engine.subscription.assigned()
        chosen = _arguments.topic_partitions(partitions) or sorted(assigned)
        if not chosen:
            raise NotAssignedError("no partitions are assigned")
        self._check_assigned(chosen)
        return chosen

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = self._engine.subscription.assigned()
        for tp in partitions:
            if tp not in assigned:
                raise NotAssignedError(f"{tp.topic}-{tp.partition} is not assigned")

    def positions(self) -> dict[TopicPartition, int]:
        """Of the assigned partitions the offsets of the next records, where known; no I/O."""
        found = self._engine.subscription.snapshot().partitions
        return {tp: at.position for tp, at in found.items() if at.position is not None}

    # -- what is known ------------------------------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record by the last fetch; None before. NotAssignedError."""
        self._check_process()
        return self._engine.subscription.high_watermark(_arguments.topic_partition(partition))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, as far as it knows; no I/O (KIP-447)."""
        self._check_process()
        group = self._config.group
        if self._engine.coordinator is None:
            return ConsumerGroupMetadata()
        now = self._engine.coordinator.snapshot()
        return ConsumerGroupMetadata(
            group.group_id,
            now.generation_id,
            now.member_id,
            group.group_instance_id,
            _group_state(now),
        )

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets each assigned partition is behind its end, as of the latest fetch.

        None for one that nothing is known of yet. No I/O. With read_committed the end is where the
        first open transaction begins.
        """
        self._check_process()
        return lags(self._engine)

    def explain(self) -> Explanation:
        """Why nothing comes, and why the group rebalanced: ``print(consumer.explain())``.

        At any time, without I/O, of KafkaConsumer from any thread. ``.as_dict()`` has all of it
        for a log.
        """
        started = self._pid is not None
        return Explanation(collect_diagnosis(self._engine, started=started, closed=self._closed))

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """Figures by group and name (docs/monitoring.md); None if ``metrics_enabled=False``.

        ``raw`` changes nothing.
        """
        self._check_process()
        return collect(self._engine) if self._config.metrics_enabled else None

    # -- offsets to commit --------------------------------------------------------------------

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, object] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._engine.coordinator is None:
            raise IllegalStateError("there is nothing to commit to: give the consumer a group_id")
        if offsets is None:
            return self._engine.subscription.positions_for_commit()
        return _arguments.commit_offsets(offsets)

    def _require_group(self) -> None:
        if self._engine.coordinator is None:
            raise IllegalStateError("this needs a group: give the consumer a group_id")

    def _close_deserializers(self) -> None:
        for deserializer in (self._config.key_deserializer, self._config.value_deserializer):
            close = getattr(deserializer, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    logger.exception("closing %r failed", deserializer)


def _group_state(group: MembershipSnapshot) -> str:
    """The membership in the words of kafka-python."""
    if group.is_stable:
        return "<stable>"
    return "<unjoined>" if group.generation_id < 0 else "<rebalancing>"
