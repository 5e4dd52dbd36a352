"""Offsets by timestamp, and the ends of logs: ListOffsets, asked of each partition's leader."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import anyio

from kohort.config import FetchConfig
from kohort.errors import KafkaError, LeaderNotAvailableError, OffsetsTimeoutError
from kohort.fetcher._cluster_view import FetchCluster
from kohort.fetcher._errors import Failure, FailureAction, lookup_failure
from kohort.protocol import messages
from kohort.transport import Backoff, Leader, TopicMetadata, in_seconds, start_soon
from kohort.types import OffsetAndTimestamp, TopicPartition

logger = logging.getLogger("kohort.fetcher")

EARLIEST = -2
"""In place of a timestamp: the first offset of the log."""
LATEST = -1
"""In place of a timestamp: the offset behind the last record (read_committed: the last stable)."""

OffsetResult: TypeAlias = OffsetAndTimestamp | Failure | None


class OffsetLookup:
    """Asks leaders for offsets."""

    def __init__(self, cluster: FetchCluster, config: FetchConfig, *, rng: random.Random) -> None:
        self._cluster = cluster
        self._config = config
        self._rng = rng

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp (ms; or EARLIEST, LATEST); None: no such.

        ``timeout`` in seconds. Retried while the error passes by itself; OffsetsTimeoutError when
        the time is up, any other error at once.
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
                    await self._request_from_leaders(missing, results)
                finally:  # when the time is up for one broker, the others' answers count
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
        """Partitions by the broker to ask, and those that have no leader at the moment."""
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
        """One request to one broker; what fails is in the answer, nothing is raised."""
        committed = self._config.isolation_level == "read_committed"
        leaders = {tp: self._cluster.metadata.leader(tp) for tp in timestamps}
        try:
            response = await self._cluster.request(
                _request(timestamps, leaders, committed),
                node=node,
                # Version 1 cannot tell the last stable offset.
                min_version=2 if committed else None,
            )
        except KafkaError as error:
            self._cluster.request_refresh()
            action = FailureAction.RETRY if error.retriable else FailureAction.RAISE
            return {tp: Failure(error, action) for tp in timestamps}
        results = _results(response, timestamps)
        if any(isinstance(found, Failure) and found.needs_refresh for found in results.values()):
            self._cluster.request_refresh()
        return results

    async def _request_from_leaders(
        self, timestamps: Mapping[TopicPartition, int], results: dict[TopicPartition, OffsetResult]
    ) -> None:
        """Ask all leaders at once; their answers are in ``results`` as they come."""

        async def request(node: int, partitions: list[TopicPartition]) -> None:
            results.update(
                await self.request_offsets(node, {tp: timestamps[tp] for tp in partitions})
            )

        by_node, leaderless = self.by_leader(timestamps)
        known: Mapping[str, TopicMetadata] = {}
        if leaderless:
            # They may be of topics that nobody has asked the metadata for.
            try:
                topics = {tp.topic for tp in leaderless}
                # A look-up of a mistyped topic must not create it.
                known = (await self._cluster.fetch_topics(topics, may_create=False)).topics
            except KafkaError as error:
                logger.debug("no metadata of %s: %s", leaderless, str(error))
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
    """The failure of a partition that nobody leads, or that the metadata does not have (yet)."""
    return Failure(
        LeaderNotAvailableError(
            f"{tp.topic}-{tp.partition} has no leader at the moment, or does not exist"
        ),
        FailureAction.RETRY,
        needs_refresh=True,
    )


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
            results[tp] = no_leader(tp)  # an answer that leaves a partition out
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
        f"the offsets of {names}{more} did not come within {in_seconds(timeout)}"
        + (f"; the last error was: {last}" if last is not None else ""),
        found=found,
    )
    error.__cause__ = last
    return error
