"""The producers whose open transactions hold a reader of committed records back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

import anyio

from kohort.errors import KafkaError
from kohort.logs import PlacedText, error_text, get_logger
from kohort.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from kohort.subscription import PartitionState, SubscriptionState
from kohort.transport import ClusterClient, counted, escaped, start_soon
from kohort.types import NamedTuple, TopicPartition

logger = get_logger("kohort.consumer")

CHECK_SECONDS = 5.0
"""Seconds between two checks. A partition that waits at both is looked up."""
AGAIN_SECONDS = 30.0
"""Minimum seconds between two requests to one broker."""


class OpenTransaction(NamedTuple):
    """The open transaction of a partition that has the lowest first offset."""

    producer_id: int
    epoch: int
    first_offset: int
    last_timestamp: int
    """The time of the producer's latest record in ms since 1970, or -1."""

    def text(self, tp: TopicPartition, hidden: int, now: float) -> str:
        """Return a sentence for people. ``now`` is in seconds since 1970."""
        return (
            f"{escaped(tp.topic)}-{tp.partition}: {offsets_wait(hidden)} for producer "
            f"{self.producer_id} (epoch {self.epoch}), whose transaction is open since offset "
            f"{self.first_offset}{self._latest_record(now)}"
        )

    def _latest_record(self, now: float) -> str:
        if self.last_timestamp < 0:
            return ""
        from datetime import UTC, datetime, timedelta  # few consumers wait for a transaction

        try:
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.last_timestamp)
        except OverflowError:  # producers choose the timestamps
            return ""
        ago = max(0.0, now - self.last_timestamp / 1000)
        return f"; its latest record is of {at:%Y-%m-%d %H:%M:%S} UTC ({ago:.0f} s ago)"


class OpenTransactions:
    """The open transactions behind which the last stable offset does not advance.

    The offsets come with the fetches. Only a partition that is read to its last stable offset, and
    has later records, costs requests. DescribeProducers needs READ on the topic, as Fetch does.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        *,
        wall_clock: Callable[[], float],
        timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._wall_clock = wall_clock
        self._timeout_ms = timeout_ms
        self._stable: dict[TopicPartition, int] = {}
        """The last stable offsets of the partitions that waited at the latest check."""
        self._requested_at: dict[int, float] = {}
        self._found: dict[TopicPartition, tuple[int, OpenTransaction]] = {}
        self._logged: dict[TopicPartition, OpenTransaction] = {}

    def find(self, tp: TopicPartition, state: PartitionState) -> OpenTransaction | None:
        """Return the transaction that a partition waits for, or None if it is unknown."""
        stable, transaction = self._found.get(tp, (None, None))
        return transaction if stable == _stable_offset(state) else None

    async def run(self) -> None:
        """Check the assigned partitions until cancelled."""
        while True:
            await anyio.sleep(CHECK_SECONDS)
            await self._check()

    async def _check(self) -> None:
        states = self._subscription.snapshot().partitions
        before, self._stable = self._stable, _waiting(states)
        self._found = {tp: each for tp, each in self._found.items() if tp in self._stable}
        self._logged = {tp: each for tp, each in self._logged.items() if tp in self._stable}
        now = anyio.current_time()
        by_node: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp, stable in self._stable.items():
            leader = self._cluster.metadata.leader(tp)
            if before.get(tp) == stable and leader is not None:
                by_node[leader.node].append(tp)
        async with anyio.create_task_group() as tasks:
            for node, partitions in by_node.items():
                if now >= self._requested_at.get(node, now - AGAIN_SECONDS) + AGAIN_SECONDS:
                    self._requested_at[node] = now
                    start_soon(tasks, self._look_up, node, partitions, states)

    async def _look_up(
        self,
        node: int,
        partitions: list[TopicPartition],
        states: Mapping[TopicPartition, PartitionState],
    ) -> None:
        try:
            response = await self._cluster.request(
                _request(partitions), node=node, timeout_ms=self._timeout_ms
            )
        except KafkaError as error:
            logger.debug("DescribeProducers to node %d failed: %s", node, error_text(error))
            return
        for tp, producers in _partitions(response, partitions):
            transaction = _oldest(producers)
            if transaction is not None:
                self._note(tp, states[tp], transaction)

    def _note(
        self, tp: TopicPartition, state: PartitionState, transaction: OpenTransaction
    ) -> None:
        self._found[tp] = _stable_offset(state) or 0, transaction
        before = self._logged.get(tp)
        if before is None or before[:3] != transaction[:3]:
            self._logged[tp] = transaction
            hidden = hidden_offsets(state)
            text = transaction.text(tp, hidden, self._wall_clock())
            offset = transaction.first_offset
            place = PlacedText(text, topic=tp.topic, partition=tp.partition, offset=offset)
            logger.info("%s", place)


def offsets_wait(number: int) -> str:
    """Return text such as ``"1 offset waits"`` or ``"2 offsets wait"``."""
    return f"{counted(number, 'offset')} {'waits' if number == 1 else 'wait'}"


def hidden_offsets(state: PartitionState) -> int:
    """Return the number of offsets after the last stable offset, if all before it were read."""
    marks, stable = state.watermarks, _stable_offset(state)
    if marks is None or stable is None or state.position is None or state.position < stable:
        return 0
    return max(0, marks.high_watermark - stable)


def _stable_offset(state: PartitionState) -> int | None:
    marks = state.watermarks
    return None if marks is None or marks.last_stable_offset < 0 else marks.last_stable_offset


def _waiting(states: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
    """Return the last stable offsets of the partitions with offsets that are hidden."""
    return {tp: _stable_offset(state) or 0 for tp, state in states.items() if hidden_offsets(state)}


def _request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
    )


def _partitions(
    response: DescribeProducersResponse, requested: Collection[TopicPartition]
) -> Iterable[tuple[TopicPartition, list[DescribeProducersResponse.ProducerState]]]:
    """Yield the producers of each requested partition without an error code."""
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if tp in requested and not partition.error_code:
                yield tp, partition.active_producers


def _oldest(
    producers: Iterable[DescribeProducersResponse.ProducerState],
) -> OpenTransaction | None:
    """Return the open transaction with the lowest first offset."""
    return min(
        (
            OpenTransaction(
                producer.producer_id,
                producer.producer_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
            )
            for producer in producers
            if producer.current_txn_start_offset >= 0
        ),
        key=lambda each: each.first_offset,
        default=None,
    )
