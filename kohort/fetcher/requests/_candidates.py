"""The partitions that may be fetched next, updated by events of each partition.

If each fetch checked every assigned partition, its cost would grow with the number of partitions.
Therefore the result of the latest check of a partition is kept. It is checked again only after one
of these events:

* The partition is assigned, revoked, sought, reset, paused or resumed, or its position becomes
  known. :meth:`SubscriptionState.touch` notes it.
* A fetch of the partition enters or leaves the buffer, or the buffer becomes full or has room
  again. The same method notes it.
* A response about the partition arrives, or its position is validated. :meth:`Candidates.touch`
  notes it.
* The cluster metadata is replaced. This concerns all partitions.
* A time is reached: a back-off ends, or a preferred read replica expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher._retries import Retries
from kohort.fetcher._validation import PositionCheck, Validation
from kohort.fetcher.buffer._buffer_limits import BufferLimits
from kohort.fetcher.requests._request import PartitionRequest
from kohort.subscription import NO_ID, FetchTarget, PendingReset, SubscriptionState
from kohort.types import TopicPartition


class NodeCandidates:
    """The partitions that may be fetched from one broker."""

    __slots__ = ("changed", "has_all_changes", "ready")

    def __init__(self) -> None:
        self.ready: dict[TopicPartition, PartitionRequest] = {}
        """The request for each partition, in flight or not."""
        self.changed: dict[TopicPartition, None] = {}
        """The changes since the latest fetch over the main connection.

        Partitions in flight over the extra connection are included.
        """
        self.has_all_changes = True
        """False if the latest fetch over the main connection left out other partitions, too."""

    def put(self, tp: TopicPartition, request: PartitionRequest | None) -> None:
        """Set the request for a partition, or remove it with None."""
        if request is None:
            if self.ready.pop(tp, None) is not None:
                self.changed[tp] = None
        elif self.ready.get(tp) != request:
            self.ready[tp] = request
            self.changed[tp] = None


class _Timers:
    """Times to check partitions again. Equal entries are kept once."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, TopicPartition]] = []
        self._entries: set[tuple[float, TopicPartition]] = set()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float:
        """The earliest time, or infinity if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def add(self, at: float, tp: TopicPartition) -> None:
        """Check the partition again at this time."""
        if (at, tp) not in self._entries:
            self._entries.add((at, tp))
            heappush(self._heap, (at, tp))

    def take_due(self, now: float) -> list[TopicPartition]:
        """Remove the partitions whose time is reached, and return them."""
        due: list[TopicPartition] = []
        while self._heap and self._heap[0][0] <= now:
            self._entries.remove(entry := heappop(self._heap))
            due.append(entry[1])
        return due


class Candidates:
    """The result of the latest check of each partition.

    The attributes :attr:`nodes`, :attr:`waiting_for_room`, :attr:`unvalidated` and :attr:`resets`
    are up to date after :meth:`refresh`.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        limits: BufferLimits,
        leaders: Leaders,
        replicas: Replicas,
        retries: Retries[TopicPartition],
        validation: Validation,
        size_of: Callable[[TopicPartition, int], int],
    ) -> None:
        self._subscription = subscription
        self._limits = limits
        self._leaders = leaders
        self._replicas = replicas
        self._retries = retries
        self._validation = validation
        self._size_of = size_of
        self.nodes: dict[int, NodeCandidates] = {}
        """Candidates by the broker that each partition is read from."""
        self.waiting_for_room: dict[TopicPartition, int] = {}
        """Brokers of the partitions that wait for room in the buffer."""
        self.unvalidated: dict[TopicPartition, PositionCheck] = {}
        """Checks of the positions that must be validated first."""
        self.resets: dict[TopicPartition, PendingReset] = {}
        """Resets of the partitions whose positions must be looked up."""
        self._node_of: dict[TopicPartition, int] = {}
        self._touched: dict[TopicPartition, None] = {}
        self._timers = _Timers()
        self._metadata: object = None

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the next refresh() check these partitions."""
        self._touched.update(dict.fromkeys(partitions))

    def refresh(self, now: float) -> float:
        """Check the touched partitions, and return the time at which the next one is due."""
        same = self._metadata is (metadata := self._leaders.metadata)
        if not same:
            self._subscription.touch_all()
        if self._timers.next_at <= now:
            self.touch(self._timers.take_due(now))
        subscription = self._subscription
        targets: list[tuple[TopicPartition, FetchTarget | None, bool]] = []
        with subscription.lock:
            self._limits.update()
            self._touched |= subscription.take_touched()
            for tp in self._touched:
                self.waiting_for_room.pop(tp, None)
                self.resets.pop(tp, None)
                state = subscription.partition(tp)
                target = None if state is None else state.fetch_target()
                targets.append((tp, target, target is None or self._limits.has_room(target)))
                if state is not None and state.reset is not None:
                    if pending := subscription.pending_reset(state):
                        self.resets[tp] = pending
            if self.waiting_for_room:
                self._limits.is_fetcher_waiting = True
        for tp, target, has_room in targets:
            if not (same and has_room and target is not None and self._advance(target)):
                self._place(tp, target, has_room, now)
            del self._touched[tp]  # after the check, so that an exception repeats it
        self._metadata = metadata
        return self._timers.next_at

    def _advance(self, target: FetchTarget) -> bool:
        """Move a request to another offset under the same metadata.

        Return False if anything else may have changed.
        """
        tp, epoch, offset, _, topic_id = target
        node = self._node_of.get(tp)
        known = None if node is None else self.nodes[node].ready.get(tp)
        if node is None or known is None or known.epoch != epoch:
            return False
        if (
            topic_id not in (NO_ID, known.topic_id)
            or self._validation.validated.get(tp) != (epoch, known.leader_epoch)
            or tp in self._retries.failures
            or tp in self._replicas.chosen
        ):
            return False
        size = self._size_of(tp, node)
        if offset != known.offset or size != known.max_bytes:
            # The class itself would be a call of Python.
            fields = (tp, epoch, offset, known.leader_epoch, size, known.topic_id)
            candidates = self.nodes[node]
            candidates.ready[tp] = tuple.__new__(PartitionRequest, fields)
            candidates.changed[tp] = None
        return True

    def _place(
        self, tp: TopicPartition, target: FetchTarget | None, has_room: bool, now: float
    ) -> None:
        self.unvalidated.pop(tp, None)
        node, request = (
            (None, None) if target is None else self._find_request(target, has_room, now)
        )
        before = self._node_of.get(tp)
        if before is not None and before != node:
            self.nodes[before].put(tp, None)
            del self._node_of[tp]
        if node is not None:
            if (candidates := self.nodes.get(node)) is None:
                candidates = self.nodes[node] = NodeCandidates()
            candidates.put(tp, request)
            self._node_of[tp] = node

    def _find_request(
        self, target: FetchTarget, has_room: bool, now: float
    ) -> tuple[int | None, PartitionRequest | None]:
        """Return the broker to read from, and the request for it.

        The request is None while the partition must wait. The broker is None without a leader and
        during a back-off.
        """
        tp, epoch = target.topic_partition, target.epoch
        leader = self._leaders.find(tp)
        if leader is None:
            self._timers.add(self._leaders.request_refresh(tp, now), tp)
            return None, None
        not_before = self._retries.not_before(tp, epoch)
        if not_before > now:
            self._timers.add(not_before, tp)
            return None, None
        node = self._replicas.find(tp, leader, now)
        if (until := self._replicas.until(tp)) is not None:
            self._timers.add(until, tp)
        if not has_room:
            self.waiting_for_room[tp] = node
            return node, None
        if self._validation.is_needed(target, leader):
            self.unvalidated[tp] = PositionCheck(target, leader)
            return node, None
        self._validation.mark_validated(tp, epoch, leader.epoch)
        topic_id = target.topic_id
        if topic_id == NO_ID:
            topic_id = self._leaders.topic_id(tp.topic)
        size = self._size_of(tp, node)
        return node, PartitionRequest(tp, epoch, target.offset, leader.epoch, size, topic_id)
