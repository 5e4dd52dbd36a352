"""Partitions that fail: a log line for each cause, and a report of each missing right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable
from typing import Any

from kohort.errors import BrokerResponseError, KafkaError, broker_error
from kohort.fetcher._environment import FetchCluster
from kohort.fetcher._errors import Failure, FailureAction
from kohort.fetcher._retries import Retries
from kohort.fetcher.buffer._completed import FailedFetch
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.logs import PlacedText, error_text, get_logger
from kohort.transport import RepeatedLog, is_end_of_client, with_principal
from kohort.types import TopicPartition

logger = get_logger("kohort.fetcher")

LOGGED_POLICIES = ("skip", "pause")
"""Values of ``on_error`` by which a missing right is logged instead of raised."""


class _Cause:
    """The partitions that fail for one reason, and the latest error of one of them."""

    __slots__ = ("error", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, None] = {}
        self.error: KafkaError = KafkaError()


class FailingPartitions:
    """Partitions whose latest fetch or look-up failed, by the cause.

    The cause is the error code, or the name of the error's class. A cause is logged when it
    begins, and then at the intervals of :class:`RepeatedLog` until no partition fails for it.
    """

    def __init__(self, logger: logging.Logger, attempt: str = "fetching") -> None:
        self._attempt = attempt
        self._repeats = RepeatedLog(logger)
        self.cause_of: dict[TopicPartition, Hashable] = {}
        """The cause of each partition that fails."""
        self._causes: dict[Hashable, _Cause] = {}
        self._unlogged: dict[Hashable, None] = {}

    def failed(self, tp: TopicPartition, error: KafkaError) -> None:
        """Note a failure. The next :meth:`log` reports it."""
        key: Hashable = type(error).__name__
        if isinstance(error, BrokerResponseError):
            key = error.code
        if self.cause_of.get(tp, key) != key:
            self.succeeded(tp)
        self.cause_of[tp] = key
        cause = self._causes.setdefault(key, _Cause())
        cause.partitions[tp] = None
        cause.error = error
        self._unlogged[key] = None

    def succeeded(self, tp: TopicPartition) -> None:
        """Forget the failure of a partition that could be fetched, or is not owned."""
        if tp not in self.cause_of:
            return
        key = self.cause_of.pop(tp)
        partitions = self._causes[key].partitions
        del partitions[tp]
        if not partitions:
            del self._causes[key]
            self._unlogged.pop(key, None)
            self._repeats.ended(key)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the failures of all other partitions."""
        for tp in [tp for tp in self.cause_of if tp not in partitions]:
            self.succeeded(tp)

    def log(self) -> None:
        """Log the causes of the failures since the call before, where a line is due."""
        while self._unlogged:
            key, _ = self._unlogged.popitem()
            cause = self._causes[key]
            text = _text(cause, self._attempt) + "; trying again"
            self._repeats.log(key, logging.INFO, text, same=str(key))


def _text(cause: _Cause, attempt: str) -> PlacedText:
    count, error = len(cause.partitions), cause.error
    if count == 1:
        return error_text(error)
    topic, partition = next(iter(cause.partitions))
    if isinstance(error, BrokerResponseError):
        error = broker_error(error.code)
    return PlacedText(f"{attempt} {count:,} partitions, {topic}-{partition} one of them: {error}")


class DeniedTopics:
    """Reports of missing rights, raised or logged by ``on_error``."""

    def __init__(self, queues: PartitionQueues, on_error: Any, cluster: FetchCluster) -> None:
        self._cluster = cluster
        self._queues = queues
        self._only_logs = on_error in LOGGED_POLICIES

    def note_denied(
        self,
        tp: TopicPartition,
        epoch: int,
        error: KafkaError,
        retries: Retries[TopicPartition],
        now: float,
    ) -> bool:
        """Note a denied request, and return True if there is a new error to raise."""
        with_principal(error, self._cluster.principal)
        is_news = retries.note_denied(tp, now, epoch)
        if is_news and not self._only_logs:
            return self._queues.append(FailedFetch(tp, epoch, error, is_transient=True))
        if is_news:
            logger.warning("%s", error_text(error))
        self._queues.note_error(tp, epoch, error)
        return False


class LookupFailures:
    """Failures of requests about positions: retried, denied, or raised from the next drain."""

    def __init__(
        self,
        queues: PartitionQueues,
        retries: Retries[TopicPartition],
        denied_topics: DeniedTopics,
        on_ready: Callable[[], None],
    ) -> None:
        self.retries = retries
        self._queues = queues
        self._denied_topics = denied_topics
        self._on_ready = on_ready
        self._failing = FailingPartitions(logger, "looking up offsets of")

    def note(self, tp: TopicPartition, epoch: int, failure: Failure, now: float) -> None:
        """Note a failed request. The partition is retried after a back-off."""
        if failure.action is FailureAction.DENY:
            if self._denied_topics.note_denied(tp, epoch, failure.error, self.retries, now):
                self._on_ready()
            return
        if failure.action is FailureAction.RETRY:
            # The transport reports failures of connections, once for each broker.
            if isinstance(failure.error, BrokerResponseError):
                self._queues.note_error(tp, epoch, failure.error)
                self._failing.failed(tp, failure.error)
        else:
            self.report(tp, epoch, failure.error, is_transient=True)
        self.retries.failed(tp, now, epoch)

    def succeeded(self, tp: TopicPartition) -> None:
        """Forget the failures of a partition."""
        self.retries.succeeded(tp)
        self._failing.succeeded(tp)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the failures of all other partitions."""
        self.retries.keep_only(partitions)
        self._failing.keep_only(partitions)

    def log(self) -> None:
        """Log the causes of the failures since the call before, where a line is due."""
        self._failing.log()

    def report(
        self, tp: TopicPartition, epoch: int, error: KafkaError, *, is_transient: bool
    ) -> None:
        """Put an error into the buffer, which raises it from the next drain."""
        if is_end_of_client(error):
            return
        if self._queues.append(FailedFetch(tp, epoch, error, is_transient=is_transient)):
            self._on_ready()
