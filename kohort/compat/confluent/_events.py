"""What a consumer reports besides records: ends of partitions, errors, statistics."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from kohort import KafkaConsumer as NativeConsumer
from kohort import TopicPartition
from kohort.compat.confluent._buffer import Buffer
from kohort.compat.confluent._client_errors import ClientErrors, overdue_error
from kohort.compat.confluent._errors import error_message
from kohort.compat.confluent._offsets import OffsetStore
from kohort.compat.confluent._options import Options
from kohort.compat.confluent._stats import statistics
from kohort.compat.confluent._values import OFFSET_INVALID, KafkaError, Message, ThrottleEvent

_LOOK_S = 1.0
"""Time between looks at the delays by quotas."""
_WAIT_S = 0.5
_WAIT_FOR_END_S = 0.1
_UNKNOWN = "Subscribed topic not available: {}: Broker: Unknown topic or partition"
_END = "Fetch from broker reached end of partition at offset {} (HighwaterMark {})"


class Events:
    """Events of one consumer: messages with errors, and calls of the program's callbacks."""

    def __init__(
        self,
        native: NativeConsumer[Any, Any],
        buffer: Buffer,
        offsets: OffsetStore,
        options: Options,
    ) -> None:
        self._native = native
        self._buffer = buffer
        self._offsets = offsets
        self._made_at = time.monotonic()
        self._options = options
        self._errors = ClientErrors(options.error_cb, options.logger)
        self._ends: dict[TopicPartition, int] = {}
        """Positions at which the end of a partition was reported."""
        self._look_at = 0.0
        self._stats_at = 0.0 if options.stats_cb and options.stats_interval > 0 else math.inf
        self._longest_delay = 0.0

    # -- time ---------------------------------------------------------------------------------

    def longest_wait(self, now: float) -> float:
        """Return how long a poll may wait before the next call of :meth:`serve`."""
        wait = _WAIT_FOR_END_S if self._options.partition_eof else _WAIT_S
        return max(0.0, min(wait, self._stats_at - now))

    def serve(self, now: float) -> None:
        """Call ``stats_cb`` if it is due."""
        if now < self._stats_at:
            return
        is_first, self._stats_at = self._stats_at == 0.0, now + self._options.stats_interval
        if not is_first and self._options.stats_cb is not None:
            delivered = {tp: last.offset() + 1 for tp, last in self._buffer.last.items()}
            stored = {tp: at.offset for tp, at in self._offsets.stored().items()}
            age = now - self._made_at
            self._options.stats_cb(statistics(self._native, delivered, stored, age))

    def look(self, now: float) -> None:
        """Report the ends of partitions, a failed connection, and delays by quotas."""
        if self._options.partition_eof:
            self.look_for_ends()
        self._errors.look_for_brokers(self._native)
        if self._options.throttle_cb is not None and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look_for_delays(self._options.throttle_cb)

    def _look_for_delays(self, callback: Any) -> None:
        figures = (self._native.metrics() or {}).get("consumer-fetch-manager-metrics", {})
        longest = figures.get("fetch-throttle-time-max", 0.0)
        if longest > self._longest_delay:
            self._longest_delay = longest
            callback(ThrottleEvent("", -1, longest / 1000))

    # -- ends ---------------------------------------------------------------------------------

    def look_for_ends(self) -> None:
        """Report each partition whose position has newly reached its end."""
        for tp, position in self._native.positions().items():
            if self._ends.get(tp) == position:
                continue
            end = self._native.last_stable_offset(tp)
            if end is None or end < 0:
                end = self._native.highwater(tp)
            if end is not None and position >= end:
                self._ends[tp] = position
                text = _END.format(position, self._native.highwater(tp))
                error = KafkaError(KafkaError._PARTITION_EOF, text)
                self._buffer.add_event(tp, error_message(error, tp, position))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the ends of these partitions again."""
        for tp in partitions:
            self._ends.pop(tp, None)

    def watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first and the last offset as of the latest fetch."""
        if tp not in self._native.assignment() or (high := self._native.highwater(tp)) is None:
            return OFFSET_INVALID, OFFSET_INVALID
        figures = (self._native.metrics() or {}).get(
            f"consumer-fetch-manager-metrics.{tp.topic}-{tp.partition}", {}
        )
        lead, position = figures.get("records-lead"), self._native.positions().get(tp)
        known = lead is not None and position is not None
        return (int((position or 0) - (lead or 0)) if known else OFFSET_INVALID), high

    # -- errors -------------------------------------------------------------------------------

    def note_overdue(self, seconds: float) -> None:
        """Report that the program has not polled for longer than ``max.poll.interval.ms``."""
        self.add_event(error_message(overdue_error(seconds, self._options.poll_interval)))

    def report(self, error: KafkaError) -> None:
        """Give an error of the client to ``error_cb``, or log it."""
        self._errors.report(error)

    def add_error(self, message: Message) -> None:
        """Let poll() return an error, unless it did so a short time ago."""
        error = message.error()
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and message.topic() is None:
            self._add_unknown_topics()
            return
        key = (message.topic(), message.partition(), message.offset(), error.code(), error.str())
        if not self._errors.is_repeated(key):
            self.add_event(message)

    def _add_unknown_topics(self) -> None:
        """Report each topic that does not exist, as librdkafka does."""
        for topic in self._native.explain().as_dict()["subscription"]["unknown_topics"]:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, _UNKNOWN.format(topic))
            self.add_error(error_message(error, TopicPartition(topic, 0)))

    def add_event(self, message: Message) -> None:
        """Let poll() return a message that is no record."""
        self._buffer.add_event(None, message)
