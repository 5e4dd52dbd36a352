"""What the brokers said of each partition, put where it belongs."""

from __future__ import annotations

import logging
from collections.abc import Collection

from kohort.errors import ErrorCode, LogTruncationError, broker_error
from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._cluster_view import Cluster
from kohort.fetcher._completed import FailedFetch
from kohort.fetcher._counters import FetchCounters
from kohort.fetcher._errors import Failure, Then
from kohort.fetcher._failure_reports import FailingPartitions, Refusals
from kohort.fetcher._leaders import Leaders
from kohort.fetcher._replicas import Replicas
from kohort.fetcher._request import Answer, Ask, BatchTooLarge, Redirect
from kohort.fetcher._retries import Retries
from kohort.fetcher._sessions import Watermarks
from kohort.fetcher._validation import Validation
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.fetcher")


class ResponseIntake:
    """Data goes into the buffer, failures too if the caller is to hear of them.

    What follows for the next fetch is noted: the size that a batch needs, whose turn it is, when a
    partition may be asked for again, and which broker.
    """

    def __init__(
        self,
        cluster: Cluster,
        buffer: FetchBuffer,
        leaders: Leaders,
        replicas: Replicas,
        validation: Validation,
        retries: Retries[TopicPartition],
        counters: FetchCounters,
        refusals: Refusals,
    ) -> None:
        self.sizes: dict[TopicPartition, int] = {}
        """Of partitions whose next batch does not fit into the usual size."""
        self.turns: dict[TopicPartition, int] = {}
        """Who brought something last has the highest."""
        self._turn = 0
        self._cluster = cluster
        self._buffer = buffer
        self._leaders = leaders
        self._replicas = replicas
        self._validation = validation
        self._retries = retries
        self._counters = counters
        self._refusals = refusals
        self._failing = FailingPartitions(logger)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget any others."""
        for memory in (self.sizes, self.turns):
            for tp in [tp for tp in memory if tp not in partitions]:
                del memory[tp]
        self._failing.keep_only(partitions)

    def log_failures(self) -> None:
        """Log the failures of one response, a line for each cause."""
        self._failing.log()

    def take(
        self, node: int, ask: Ask, answer: Answer, now: float, *, had_room: bool = False
    ) -> bool:
        """What a broker said of one partition; True if there is something new to drain."""
        tp = ask.topic_partition
        if isinstance(answer, Redirect):
            failure = self._redirected(node, ask, answer.node, now)
            return failure is not None and self._failed(ask, failure, now)
        if isinstance(answer, Failure):
            of_leader = not self._replicas.leave(tp, node, now)
            if not of_leader and not isinstance(answer.error, LogTruncationError):
                # A follower may be behind, or out of order: the leader's word counts.
                answer = answer._replace(then=Then.RETRY)
            return self._failed(ask, answer, now, again_at_once=not of_leader)
        self._succeeded(tp)
        if isinstance(answer, BatchTooLarge):
            logger.info("%s-%d: a batch needs %d bytes to be fetched", *tp, answer.max_bytes)
            self.sizes[tp] = answer.max_bytes
            return False
        brought = not answer.exhausted
        if brought:
            self._validation.read(tp, ask.epoch, ask.leader_epoch, answer.last_leader_epoch)
            self._turn += 1
            self.turns[tp] = self._turn
        return self._buffer.append(answer, at=now, had_room=had_room) and brought

    def _redirected(self, node: int, ask: Ask, follower: int, now: float) -> Failure | None:
        """Read from a follower from now on; a failure if that makes no sense."""
        tp = ask.topic_partition
        leader = self._leaders.find(tp)
        if leader is not None and leader.epoch != ask.leader_epoch:
            return None  # said by one that leads no more
        makes_sense = (
            leader is not None
            and node == leader.node
            and not self._replicas.stays(tp)  # it was not told of the rack
            and self._leaders.follower(tp, follower)
        )
        if leader is None or not makes_sense:
            if leader is not None:
                self._replicas.stay(tp, leader, now)
            where = f"broker {node} names broker {follower} to read {tp.topic}-{tp.partition} from"
            error = broker_error(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"{where}, where it cannot be read"
            )
            return Failure(error, Then.RETRY, refresh=True)
        logger.info("%s-%d is read from broker %d, as its leader says", *tp, follower)
        self._replicas.follow(tp, follower, leader, now)
        return None

    def arrival_of(self, tp: TopicPartition) -> int:
        """The higher, the later the partition brought something; 0 for never."""
        return self.turns.get(tp, 0)

    def note_up_to_date(
        self,
        quiet: Collection[tuple[TopicPartition, int, Watermarks]],
        now: float,
        *,
        had_room: bool = False,
    ) -> None:
        """Note partitions that a response leaves out, with their epochs and latest watermarks."""
        for tp, _, _ in quiet:
            self._succeeded(tp)
        self._buffer.note_up_to_date(quiet, at=now, had_room=had_room)

    def _succeeded(self, tp: TopicPartition) -> None:
        self._retries.succeeded(tp)
        self._failing.succeeded(tp)

    def _failed(
        self, ask: Ask, failure: Failure, now: float, *, again_at_once: bool = False
    ) -> bool:
        tp, epoch = ask.topic_partition, ask.epoch
        self._counters.partition_errors += 1
        if failure.refresh:
            self._cluster.request_refresh()
        if failure.then is Then.REFUSE:
            return self._refusals.refused(tp, epoch, failure.error, self._retries, now)
        if again_at_once or (failure.refresh and self._leaders.moved(tp, ask.leader_epoch)):
            self._retries.succeeded(tp)  # somebody else is asked
        else:
            self._retries.failed(tp, now, epoch)
        if failure.then is Then.RETRY:
            self._failing.failed(tp, failure.error)
            self._buffer.note_error(tp, epoch, failure.error)
            return False
        passing = failure.then is Then.RAISE
        return self._buffer.append(FailedFetch(tp, epoch, failure.error, passing=passing))
