"""The check for log truncation when a partition has a new leader (KIP-320).

An unclean election may choose a leader that lacks the end of the log. The new leader continues from
the end of its log, so it assigns the later offsets a second time, to other records. A consumer that
continued at its position would never read those. Therefore a position is validated when the leader
epoch changes. An OffsetForLeaderEpoch request returns the end of the epoch of the last batch in the
leader's log. Nothing more is fetched before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import anyio

from kohort.errors import KafkaError, UnsupportedVersionError
from kohort.fetcher._environment import FetchCluster
from kohort.fetcher._errors import EpochEnd, Failure, FailureAction, truncation, validation_failure
from kohort.fetcher._failure_reports import LookupFailures
from kohort.fetcher._offsets import left_out
from kohort.logs import error_text, get_logger
from kohort.protocol import messages
from kohort.subscription import FetchTarget, SubscriptionState
from kohort.transport import Leader, start_soon
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = get_logger("kohort.fetcher")

MIN_VERSION = 3
"""Lowest version that clients may use (Kafka 2.3)."""


class PositionCheck(NamedTuple):
    """A position to validate, and the leader for the request."""

    target: FetchTarget
    leader: Leader


ValidationResult: TypeAlias = EpochEnd | Failure


class Validation:
    """The leader epochs that positions were validated under, and requests for the others."""

    def __init__(
        self,
        cluster: FetchCluster,
        subscription: SubscriptionState,
        failures: LookupFailures,
        *,
        on_done: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._failures = failures
        self._on_done = on_done
        self.validated: dict[TopicPartition, tuple[int, int]] = {}
        """Partition epoch and leader epoch of the latest validation, until a batch of another."""
        # Partition epoch and the epoch of the last batch.
        self._read_epochs: dict[TopicPartition, tuple[int, int]] = {}
        self._in_flight: set[tuple[TopicPartition, int]] = set()

    def mark_validated(self, tp: TopicPartition, epoch: int, leader_epoch: int) -> None:
        """Note that the position is in the log of this leader."""
        self.validated[tp] = epoch, leader_epoch

    def note_read_epoch(
        self, tp: TopicPartition, epoch: int, leader_epoch: int, batch_epoch: int
    ) -> None:
        """Note the leader epoch of a fetch, and the epoch of the last batch that it returned."""
        self._read_epochs[tp] = epoch, batch_epoch
        if self.validated.get(tp, (epoch, -1)) != (epoch, leader_epoch):
            # The previous leader sent these records, and the new leader may lack them.
            self.validated.pop(tp, None)

    def is_needed(self, target: FetchTarget, leader: Leader) -> bool:
        """True if the position must be validated before the next fetch."""
        if target.leader_epoch < 0 or leader.epoch < 0:
            return False
        if self.validated.get(target.topic_partition) == (target.epoch, leader.epoch):
            return False
        # A leader does not truncate its log.
        return target.leader_epoch < leader.epoch

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for memory in (self.validated, self._read_epochs):
            for tp in [tp for tp in memory if tp not in partitions]:
                del memory[tp]
        self._failures.keep_only(partitions)

    def start(self, tasks: TaskGroup, checks: Iterable[PositionCheck], now: float) -> float:
        """Start the checks that are due, and return the time of the next call."""
        wake_at = float("inf")
        by_node: dict[int, list[PositionCheck]] = defaultdict(list)
        for check in checks:
            key = check.target.topic_partition, check.target.epoch
            if key in self._in_flight:
                continue
            not_before = self._failures.retries.not_before(*key)
            if not_before > now:
                wake_at = min(wake_at, not_before)
            else:
                by_node[check.leader.node].append(check)
        for node, due in by_node.items():
            self._in_flight.update((each.target.topic_partition, each.target.epoch) for each in due)
            start_soon(tasks, self._check, node, due)
        return wake_at

    async def _check(self, node: int, checks: list[PositionCheck]) -> None:
        results: Mapping[TopicPartition, ValidationResult] = {}
        try:
            results = await self._request_epoch_ends(node, checks)
        except Exception as error:
            # This is a defect, but it must not stop the other partitions.
            logger.exception("validating positions at broker %d failed", node)
            failure = Failure(
                KafkaError(f"validating positions failed: {error!r}"), FailureAction.RAISE
            )
            results = {each.target.topic_partition: failure for each in checks}
        finally:
            self._in_flight.difference_update(
                (each.target.topic_partition, each.target.epoch) for each in checks
            )
        now = anyio.current_time()
        for each in checks:
            tp = each.target.topic_partition
            self._apply(each, results.get(tp) or left_out(tp, "OffsetForLeaderEpoch"), now)
        self._failures.log()
        self._on_done([each.target.topic_partition for each in checks])

    async def _request_epoch_ends(
        self, node: int, checks: list[PositionCheck]
    ) -> Mapping[TopicPartition, ValidationResult]:
        partitions = [each.target.topic_partition for each in checks]
        try:
            response = await self._cluster.request(
                _request(checks), node=node, min_version=MIN_VERSION
            )
        except UnsupportedVersionError as error:
            logger.debug(
                "broker %d does not support checks for truncation: %s", node, error_text(error)
            )
            return dict.fromkeys(partitions, EpochEnd(-1, -1))
        except KafkaError as error:
            self._cluster.request_refresh()
            action = FailureAction.RETRY if error.retriable else FailureAction.RAISE
            return dict.fromkeys(partitions, Failure(error, action))
        return _results(response)

    def _apply(self, check: PositionCheck, result: ValidationResult, now: float) -> None:
        target, leader = check
        tp, epoch = target.topic_partition, target.epoch
        with self._subscription.lock:
            state = self._subscription.partition_at(tp, epoch)
            if state is None or state.next_fetch.offset != target.offset:
                return  # the position has changed meanwhile
            log_start = -1 if state.watermarks is None else state.watermarks.log_start_offset
        if isinstance(result, Failure):
            self._failed(tp, epoch, result, now)
            return
        self._failures.succeeded(tp)
        was_read = self._read_epochs.get(tp) == (epoch, target.leader_epoch)
        is_missing = result.epoch < target.leader_epoch
        if _proves_nothing(result, target.leader_epoch, log_start):
            logger.info("%s-%d: the leader does not know epoch %d", *tp, target.leader_epoch)
        elif result.offset < target.offset or (was_read and is_missing and result.epoch > 0):
            # Brokers forget an epoch without records. A missing epoch proves truncation only if
            # the consumer has read a batch of it. Brokers without epochs respond with 0.
            error = truncation(tp, target.offset, result)
            logger.error("%s", error_text(error))
            self._failures.report(tp, epoch, error, is_transient=False)
            return
        self.mark_validated(tp, epoch, leader.epoch)

    def _failed(self, tp: TopicPartition, epoch: int, failure: Failure, now: float) -> None:
        if failure.needs_refresh:
            self._cluster.request_refresh()
        self._failures.note(tp, epoch, failure, now)


def _proves_nothing(result: EpochEnd, requested_epoch: int, log_start: int) -> bool:
    """True if the leader does not know the requested epoch, nor where it ends.

    An epoch with records ends after the log's start. So an end below it belongs to no record of the
    log, and an earlier epoch that ends at it does not, either.
    """
    if result.epoch < 0 or result.offset < 0 or result.offset < log_start:
        return True
    return result.epoch < requested_epoch and result.offset <= max(log_start, 0)


def _request(checks: list[PositionCheck]) -> messages.OffsetForLeaderEpochRequest:
    request = messages.OffsetForLeaderEpochRequest
    topics: dict[str, messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for target, leader in checks:
        name, partition = target.topic_partition
        topic = topics.setdefault(name, request.OffsetForLeaderTopic(topic=name, partitions=[]))
        topic.partitions.append(
            request.OffsetForLeaderPartition(
                partition=partition,
                current_leader_epoch=leader.epoch,
                leader_epoch=target.leader_epoch,
            )
        )
    return request(replica_id=-1, topics=list(topics.values()))


def _results(
    response: messages.OffsetForLeaderEpochResponse,
) -> dict[TopicPartition, ValidationResult]:
    results: dict[TopicPartition, ValidationResult] = {}
    for topic in response.topics:
        for found in topic.partitions:
            tp = TopicPartition(topic.topic, found.partition)
            if found.error_code:
                results[tp] = validation_failure(found.error_code, tp)
            else:
                results[tp] = EpochEnd(found.leader_epoch, found.end_offset)
    return results
