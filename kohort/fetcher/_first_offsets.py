"""The first or last offsets of logs, requested before a partition is known to need them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.fetcher._leaders import Leaders
from kohort.fetcher._offsets import EARLIEST, LATEST, OffsetLookup
from kohort.subscription import OffsetReset, PendingReset, SubscriptionState
from kohort.transport import start_soon
from kohort.types import NamedTuple, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

LOG_ENDS = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}
"""The timestamps of ListOffsets for the rules that need one request."""
KEPT_SECONDS = 5.0
"""Time until an offset is requested again, because the log has changed."""


class _WantedOffset(NamedTuple):
    """An offset to request."""

    strategy: OffsetReset
    topic_id: bytes
    leader_epoch: int


class FirstOffset(NamedTuple):
    """An offset that a rule gives for a partition."""

    found: OffsetAndTimestamp
    wanted: _WantedOffset
    until: float

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader at the request."""
        return self.wanted.leader_epoch


class FirstOffsets:
    """Look-ups for partitions that most likely have no committed offset, one to each leader.

    They run beside the look-up of the committed offsets, which saves a round trip. A failed one is
    dropped, because the partition is looked up again when it needs its position.
    """

    def __init__(
        self,
        leaders: Leaders,
        subscription: SubscriptionState,
        offsets: OffsetLookup,
        *,
        on_found: Callable[[], None],
        first_reset: Callable[[TopicPartition], OffsetReset | None],
    ) -> None:
        self._leaders = leaders
        self._subscription = subscription
        self._offsets = offsets
        self._on_found = on_found
        self._first_reset = first_reset
        self._expected: Iterable[TopicPartition] = ()
        self._in_flight: set[TopicPartition] = set()
        self._found: dict[TopicPartition, FirstOffset] = {}

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the next start() request offsets of these partitions."""
        self._expected = partitions

    def start(self, tasks: TaskGroup) -> None:
        """Request the offsets of expected partitions."""
        expected, self._expected = self._expected, ()
        by_node: dict[int, dict[TopicPartition, _WantedOffset]] = defaultdict(dict)
        for tp in expected:
            strategy, leader = self._first_reset(tp), self._leaders.find(tp)
            if strategy in LOG_ENDS and leader is not None and tp not in self._in_flight:
                topic_id = self._subscription.history.current_id(tp.topic)
                by_node[leader.node][tp] = _WantedOffset(strategy, topic_id, leader.epoch)
        for node, wanted in by_node.items():
            self._in_flight.update(wanted)
            start_soon(tasks, self._look_up, node, wanted)

    async def _look_up(self, node: int, wanted: Mapping[TopicPartition, _WantedOffset]) -> None:
        timestamps = {tp: LOG_ENDS[each.strategy] for tp, each in wanted.items()}
        try:
            results = await self._offsets.request_offsets(node, timestamps)
        finally:
            self._in_flight.difference_update(wanted)
        until = anyio.current_time() + KEPT_SECONDS
        for tp, found in results.items():
            if isinstance(found, OffsetAndTimestamp):
                self._found[tp] = FirstOffset(found, wanted[tp], until)
        self._on_found()

    def awaits(self, tp: TopicPartition) -> bool:
        """True while the offset of a partition is requested."""
        return tp in self._in_flight

    def take(self, pending: PendingReset, now: float) -> FirstOffset | None:
        """Remove and return the offset for a reset by a rule, or None."""
        first = self._found.pop(pending.topic_partition, None)
        if first is None or first.until < now:
            return None
        expected = pending.strategy, pending.topic_id
        return first if expected == (first.wanted.strategy, first.wanted.topic_id) else None

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of all other partitions."""
        for tp in [tp for tp in self._found if tp not in partitions]:
            del self._found[tp]
