"""The intake of the results for each partition, and the counters of the fetcher."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort.errors import ErrorCode, KafkaError, LogTruncationError, broker_error
from kohort.fetcher._environment import FetchCluster
from kohort.fetcher._errors import Failure, FailureAction
from kohort.fetcher._failure_reports import DeniedTopics, FailingPartitions
from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher._retries import Retries
from kohort.fetcher._validation import Validation
from kohort.fetcher.buffer._buffer import FetchBuffer
from kohort.fetcher.buffer._completed import CompletedFetch, FailedFetch
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.fetcher.requests._request import BatchTooLarge, FetchResult, PartitionRequest, Redirect
from kohort.fetcher.requests._sizes import FetchSizes
from kohort.logs import get_logger
from kohort.subscription import Watermarks
from kohort.types import TopicPartition

logger = get_logger("kohort.fetcher")


class FetchCounters:
    """Counters that only the background task writes. Any thread may read them."""

    __slots__ = (
        "fetch_errors",
        "fetches",
        "latency_max",
        "latency_total",
        "partition_errors",
        "throttle_max",
    )

    def __init__(self) -> None:
        self.fetches = 0
        self.fetch_errors = 0
        self.partition_errors = 0
        self.latency_total = 0.0
        self.latency_max = 0.0
        self.throttle_max = 0.0

    def note_response(self, latency: float) -> None:
        """Count a response and its latency in seconds."""
        self.fetches += 1
        self.latency_total += latency
        self.latency_max = max(self.latency_max, latency)

    def as_metrics(self, buffer: FetchBuffer) -> dict[str, float]:
        """Return all metrics, with times in milliseconds."""
        queues, policy = buffer.queues, buffer.policy.counters
        counters, buffered = queues.counters, queues.bytes_buffered()
        return {
            "fetch-total": self.fetches,
            "fetch-error-total": self.fetch_errors,
            "fetch-latency-avg": 1000 * self.latency_total / self.fetches if self.fetches else 0.0,
            "fetch-latency-max": 1000 * self.latency_max,
            "fetch-throttle-time-max": 1000 * self.throttle_max,
            "partition-error-total": self.partition_errors,
            "bytes-consumed-total": counters.bytes_appended,
            "bytes-buffered": buffered,
            "bytes-held": max(queues.limits.memory.pooled_bytes, buffered),
            "bytes-evicted-total": counters.bytes_evicted,
            "records-consumed-total": counters.records_delivered,
            "fetches-dropped-total": counters.dropped_stale,
            "errors-raised-total": counters.errors_raised,
            "records-skipped-total": policy.records_skipped,
            "batches-skipped-total": policy.batches_skipped,
            "bytes-skipped-total": policy.bytes_skipped,
            "pauses-on-error-total": policy.pauses,
        }


class ResponseIntake:
    """The intake that puts records into the buffer, and errors that must be raised.

    It also notes facts for the next fetch: the size that a batch needs, the order of the
    partitions, the back-off, and the replica.
    """

    def __init__(
        self,
        cluster: FetchCluster,
        queues: PartitionQueues,
        leaders: Leaders,
        replicas: Replicas,
        validation: Validation,
        retries: Retries[TopicPartition],
        sizes: FetchSizes,
        denied_topics: DeniedTopics,
    ) -> None:
        self.counters = FetchCounters()
        self.arrivals: dict[TopicPartition, int] = {}
        """Numbers by partition. The partition with the latest records has the highest one."""
        self._arrival_count = 0
        self._cluster = cluster
        self._queues = queues
        self._leaders = leaders
        self._replicas = replicas
        self._validation = validation
        self._retries = retries
        self._sizes = sizes
        self._denied_topics = denied_topics
        self.failing = FailingPartitions(logger)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for tp in [tp for tp in self.arrivals if tp not in partitions]:
            del self.arrivals[tp]
        self.failing.keep_only(partitions)

    def add(
        self,
        node: int,
        request: PartitionRequest,
        result: FetchResult,
        now: float,
        *,
        had_room: bool = False,
    ) -> bool:
        """Process the result for one partition, and return True if it must be drained."""
        if not isinstance(result, CompletedFetch):
            return self._note_no_fetch(node, request, result, now)
        tp = request.topic_partition
        if tp in self._retries.failures or tp in self.failing.cause_of:
            self._note_success(tp)
        has_records = not result.is_exhausted
        if has_records:
            self._validation.note_read_epoch(
                tp, request.epoch, request.leader_epoch, result.last_leader_epoch
            )
            self._arrival_count += 1
            self.arrivals[tp] = self._arrival_count
        return self._queues.append(result, at=now, had_room=had_room) and has_records

    def _note_no_fetch(
        self,
        node: int,
        request: PartitionRequest,
        result: Failure | BatchTooLarge | Redirect,
        now: float,
    ) -> bool:
        """Process a result without batches, and return True if it must be drained."""
        tp = request.topic_partition
        if isinstance(result, Redirect):
            failure = self._follow_redirect(node, request, result.node, now)
            return failure is not None and self._note_failure(request, failure, now)
        if isinstance(result, Failure):
            is_from_leader = not self._replicas.leave_follower(tp, node, now)
            if not is_from_leader and not isinstance(result.error, LogTruncationError):
                # A follower may lag or fail, so only errors of the leader are raised.
                result = result._replace(action=FailureAction.RETRY)
            return self._note_failure(request, result, now, retry_at_once=not is_from_leader)
        self._note_success(tp)
        logger.info("%s-%d: a batch needs %d bytes to be fetched", *tp, result.max_bytes)
        self._sizes.note_large_batch(tp, result.max_bytes)
        return False

    def _follow_redirect(
        self, node: int, request: PartitionRequest, follower: int, now: float
    ) -> Failure | None:
        """Read from a follower from now on, or return a failure if it cannot be used."""
        tp = request.topic_partition
        leader = self._leaders.find(tp)
        if leader is not None and leader.epoch != request.leader_epoch:
            return None  # the response of a former leader
        is_valid = (
            leader is not None
            and node == leader.node
            and not self._replicas.is_kept_on_leader(tp)  # the request had no rack
            and self._leaders.is_replica(tp, follower)
        )
        if leader is None or not is_valid:
            if leader is not None:
                self._replicas.keep_on_leader(tp, leader, now)
            where = f"broker {node} names broker {follower} to read {tp.topic}-{tp.partition} from"
            error = broker_error(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"{where}, but it is no available replica"
            )
            return Failure(error, FailureAction.RETRY, needs_refresh=True)
        logger.info("%s-%d is read from broker %d, which its leader names", *tp, follower)
        self._replicas.read_from(tp, follower, leader, now)
        return None

    def note_up_to_date(
        self,
        up_to_date: Collection[tuple[TopicPartition, int, Watermarks]],
        now: float,
        *,
        had_room: bool = False,
    ) -> None:
        """Note partitions that a response leaves out, with their epochs and latest watermarks."""
        for tp, _, _ in up_to_date:
            self._note_success(tp)
        self._queues.note_up_to_date(up_to_date, at=now, had_room=had_room)

    def note_node_failure(
        self, node: int, requests: Iterable[PartitionRequest], error: KafkaError, now: float
    ) -> None:
        """Note that a broker failed to serve these requests."""
        for request in requests:
            self._replicas.leave_follower(request.topic_partition, node, now)
            self._queues.note_error(request.topic_partition, request.epoch, error)

    def _note_success(self, tp: TopicPartition) -> None:
        self._retries.succeeded(tp)
        self.failing.succeeded(tp)

    def _note_failure(
        self,
        request: PartitionRequest,
        failure: Failure,
        now: float,
        *,
        retry_at_once: bool = False,
    ) -> bool:
        tp, epoch = request.topic_partition, request.epoch
        self.counters.partition_errors += 1
        if failure.needs_refresh:
            self._cluster.request_refresh()
        if failure.action is FailureAction.DENY:
            return self._denied_topics.note_denied(tp, epoch, failure.error, self._retries, now)
        if retry_at_once or (
            failure.needs_refresh and self._leaders.has_newer_leader(tp, request.leader_epoch)
        ):
            self._retries.succeeded(tp)  # the next request goes to another broker
        else:
            self._retries.failed(tp, now, epoch)
        if failure.action is FailureAction.RETRY:
            self.failing.failed(tp, failure.error)
            self._queues.note_error(tp, epoch, failure.error)
            return False
        is_transient = failure.action is FailureAction.RAISE
        return self._queues.append(FailedFetch(tp, epoch, failure.error, is_transient=is_transient))
