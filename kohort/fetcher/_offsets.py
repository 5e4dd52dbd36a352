"""Look-ups of offsets by timestamp and of log ends, by ListOffsets requests to the leaders."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import anyio

from kohort.config import FetchConfig
from kohort.errors import KafkaError, LeaderNotAvailableError, OffsetsTimeoutError
from kohort.fetcher._environment import FetchCluster
from kohort.fetcher._errors import Failure, FailureAction, lookup_failure
from kohort.logs import error_text, get_logger
from kohort.protocol import messages
from kohort.transport import Backoff, Leader, TopicMetadata, in_seconds, start_soon
from kohort.types import OffsetAndTimestamp, TopicPartition

logger = get_logger("kohort.fetcher")

EARLIEST = -2
"""The timestamp that stands for the first offset of the log."""
LATEST = -1
"""The timestamp that stands for the log end offset, or the last stable offset (read_committed)."""

_FIRST_VERSIONS = {-3: 7, -4: 8, -5: 9}
"""The first version of ListOffsets with each special timestamp."""
_FIRST_WITH_LAST_STABLE = 2

OffsetResult: TypeAlias = OffsetAndTimestamp | Failure | None


class OffsetLookup:
    """ListOffsets requests to leaders, with retries."""

    def __init__(self, cluster: FetchCluster, config: FetchConfig, *, rng: random.Random) -> None:
        self._cluster = cluster
        self._config = config
        self._rng = rng

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each timestamp, or None if there is no such record.

        A timestamp is in ms, or EARLIEST or LATEST. ``timeout`` is in seconds. Transient errors
        are retried until OffsetsTimeoutError. Any other error is raised at once.
        """
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        missing = dict(timestamps)
        failures: dict[TopicPartition, Failure] = {}
        config = self._config
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        rounds = 0
        with anyio.move_on_after(timeout):
            while missing:
                results: dict[TopicPartition, OffsetResult] = {}
                try:
                    await self.request_from_leaders(missing, results)
                finally:  # after a timeout, the responses of the other brokers still count
                    for tp, result in results.items():
                        if not isinstance(result, Failure):
                            found[tp] = result
                            del missing[tp]
                for tp, result in results.items():
                    if isinstance(result, Failure):
                        if result.action is not FailureAction.RETRY:
                            raise result.error
                        failures[tp] = result
                if missing:
                    rounds += 1
                    await anyio.sleep(backoff.delay(rounds, self._rng))
        if missing:
            raise _timed_out(missing, failures, timeout, found)
        return found

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """Return partitions by their leaders, and the partitions without a leader."""
        metadata = self._cluster.metadata
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        leaderless: list[TopicPartition] = []
        for tp in partitions:
            leader = metadata.leader(tp)
            if leader is None:
                leaderless.append(tp)
            else:
                by_node[leader.node].append(tp)
        return by_node, leaderless

    async def request_offsets(
        self, node: int, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetResult]:
        """Send one request to one broker. Failures are returned, and no error is raised.

        The broker must know the special timestamps of the request.
        """
        committed = self._config.isolation_level == "read_committed"
        leaders = {tp: self._cluster.metadata.leader(tp) for tp in timestamps}
        try:
            response = await self._cluster.request(
                _request(timestamps, leaders, committed),
                node=node,
                min_version=_first_version(timestamps.values(), committed),
            )
        except KafkaError as error:
            self._cluster.request_refresh()
            action = FailureAction.RETRY if error.retriable else FailureAction.RAISE
            return {tp: Failure(error, action) for tp in timestamps}
        results = _results(response, timestamps)
        if any(isinstance(found, Failure) and found.needs_refresh for found in results.values()):
            self._cluster.request_refresh()
        return results

    async def request_from_leaders(
        self, timestamps: Mapping[TopicPartition, int], results: dict[TopicPartition, OffsetResult]
    ) -> None:
        """Send a request to each leader. ``results`` gets each response as it arrives."""

        async def request(node: int, partitions: list[TopicPartition]) -> None:
            results.update(
                await self.request_offsets(node, {tp: timestamps[tp] for tp in partitions})
            )

        by_node, leaderless = self.by_leader(timestamps)
        known: Mapping[str, TopicMetadata] = {}
        if leaderless:
            # The metadata may not include their topics yet.
            try:
                topics = {tp.topic for tp in leaderless}
                # The look-up of a mistyped topic must not create it.
                known = (await self._cluster.fetch_topics(topics, may_create=False)).topics
            except KafkaError as error:
                logger.debug("no metadata of %s: %s", leaderless, error_text(error))
            else:
                by_node, leaderless = self.by_leader(timestamps)
        async with anyio.create_task_group() as tasks:
            for node, partitions in by_node.items():
                start_soon(tasks, request, node, partitions)
        for tp in leaderless:
            topic = known.get(tp.topic)
            if topic is not None and topic.error:
                results[tp] = lookup_failure(topic.error, tp)
            else:
                results[tp] = no_leader(tp)


def no_leader(tp: TopicPartition) -> Failure:
    """Return the failure of a partition without a leader, or unknown to the metadata."""
    return Failure(
        LeaderNotAvailableError(
            f"{tp.topic}-{tp.partition} has no leader at present, or does not exist"
        ),
        FailureAction.RETRY,
        needs_refresh=True,
    )


def left_out(tp: TopicPartition, api: str) -> Failure:
    """Return the failure of a partition that a response leaves out."""
    words = f"the response to {api} leaves out {tp.topic}-{tp.partition}"
    return Failure(LeaderNotAvailableError(words), FailureAction.RETRY, needs_refresh=True)


def _first_version(timestamps: Iterable[int], committed: bool) -> int | None:
    """Return the first version of ListOffsets that has what a request needs."""
    needed = {_FIRST_VERSIONS.get(each, 0) for each in timestamps}
    return max(needed, default=0) or (_FIRST_WITH_LAST_STABLE if committed else None)


def _request(
    timestamps: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, Leader | None],
    committed: bool,
) -> messages.ListOffsetsRequest:
    topics: dict[str, messages.ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp, timestamp in timestamps.items():
        topic = topics.setdefault(
            tp.topic, messages.ListOffsetsRequest.ListOffsetsTopic(name=tp.topic, partitions=[])
        )
        leader = leaders[tp]
        topic.partitions.append(
            messages.ListOffsetsRequest.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                timestamp=timestamp,
            )
        )
    return messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=1 if committed else 0, topics=list(topics.values())
    )


def _results(
    response: messages.ListOffsetsResponse, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetResult]:
    results: dict[TopicPartition, OffsetResult] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if tp not in timestamps:
                continue
            if partition.error_code:
                results[tp] = lookup_failure(partition.error_code, tp)
            elif partition.offset < 0:
                results[tp] = None
            else:
                results[tp] = OffsetAndTimestamp(
                    partition.offset, partition.timestamp, partition.leader_epoch
                )
    for tp in timestamps:
        if tp not in results:
            results[tp] = left_out(tp, "ListOffsets")
    return results


def _timed_out(
    missing: Mapping[TopicPartition, int],
    failures: Mapping[TopicPartition, Failure],
    timeout: float,
    found: Mapping[TopicPartition, OffsetAndTimestamp | None],
) -> OffsetsTimeoutError:
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(missing)[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    last = next((failures[tp].error for tp in missing if tp in failures), None)
    error = OffsetsTimeoutError(
        f"no offsets of {names}{more} were received within {in_seconds(timeout)}"
        + (f"; the last error was: {last}" if last is not None else ""),
        found=found,
    )
    error.__cause__ = last
    return error
