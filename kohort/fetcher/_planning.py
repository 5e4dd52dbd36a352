"""The fetches to start next: of which partitions, over which lane, and how much each may bring.

The main lane's session keeps its partitions from one fetch to the next, so only the changed
candidates are looked at. All of them are looked at where memory is scarce, as the choice is another
one each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from kohort.config import FetchConfig
from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._candidates import Candidates, NodeCandidates
from kohort.fetcher._connections import FetchConnection, NodeConnections
from kohort.fetcher._memory import Grant
from kohort.fetcher._request import Ask, FetchPlan
from kohort.fetcher._sizes import FetchSizes
from kohort.types import TopicPartition


class Fetch(NamedTuple):
    """A request to send over a lane, its long poll in seconds, and how much it may bring."""

    lane: FetchConnection
    plan: FetchPlan
    max_wait: float
    granted: Grant


class Planner:
    """Gives every candidate to a lane of its broker.

    ``arrival_of`` orders partitions: the one that brought something last has the highest.
    """

    def __init__(
        self,
        candidates: Candidates,
        buffer: FetchBuffer,
        config: FetchConfig,
        sizes: FetchSizes,
        arrival_of: Callable[[TopicPartition], int],
    ) -> None:
        self._candidates = candidates
        self._buffer = buffer
        self._config = config
        self._sizes = sizes
        self._turn_of = arrival_of
        self._nodes: dict[int, NodeConnections] = {}
        self._lanes: dict[
            TopicPartition, FetchConnection
        ] = {}  # the latest lane that asked for each
        self._alone: dict[int, dict[TopicPartition, None]] = {}

    def lanes(self, node: int) -> NodeConnections:
        """The lanes to a broker."""
        lanes = self._nodes.get(node)
        if lanes is None:
            sessions = self._config.enable_incremental_fetch_sessions
            lanes = self._nodes[node] = NodeConnections(node, sessions=sessions)
        return lanes

    def all_lanes(self) -> list[FetchConnection]:
        """The lanes to all brokers."""
        return [lane for lanes in list(self._nodes.values()) for lane in lanes.both]

    def lane_of(self, tp: TopicPartition) -> FetchConnection | None:
        """The lane that asked for the partition last; from any thread."""
        return self._lanes.get(tp)

    def in_flight(self) -> dict[TopicPartition, tuple[int, float]]:
        """The partitions that a fetch is under way for: at which broker, and since when.

        May be called from any thread.
        """
        return {
            tp: (lane.node, lane.sent_at)
            for lane in self.all_lanes()
            if lane.busy
            for tp in list(lane.session.asks)
            if self._lanes.get(tp) is lane
        }

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget any others."""
        for tp in [tp for tp in self._lanes if tp not in partitions]:
            del self._lanes[tp]

    def fetch_alone(self, node: int, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these one at a time, one batch of each, before anything else of the broker."""
        self._alone.setdefault(node, {}).update(dict.fromkeys(partitions))

    def due(self, now: float) -> tuple[list[Fetch], float]:
        """The fetches to start now, their lanes taken, and when to ask again."""
        fetches: list[Fetch] = []
        try:
            return fetches, self._add_due(fetches, now)
        except BaseException:  # a bug; a lane without a request would be busy for ever
            self._undo(fetches)
            raise

    def _undo(self, fetches: Iterable[Fetch]) -> None:
        for fetch in fetches:
            fetch.lane.finish()
            self._buffer.memory.answered(fetch.granted)
        for lane in self.all_lanes():
            if not lane.busy:
                lane.session.failed()  # the broker does not hear of the latest changes

    def _add_due(self, fetches: list[Fetch], now: float) -> float:
        look_again = float("inf")
        if self._buffer.is_ample:
            return look_again  # the next drain that makes room says so
        max_wait = self._config.fetch_max_wait_ms / 1000
        has_waiting = self._crowded_nodes()
        waiting = [
            (lanes, mine)
            for node, mine in self._candidates.nodes.items()
            if self._anything(lanes := self.lanes(node), mine)
        ]
        for number, (lanes, mine) in enumerate(waiting):
            if self._alone.get(lanes.node):
                if (fetch := self._lone_fetch(lanes, mine, now)) is not None:
                    fetches.append(fetch)
                    continue
                if lanes.not_before > now:
                    look_again = min(look_again, lanes.not_before)
                    continue
                if lanes.main.busy or lanes.side.busy:
                    continue
            choice = lanes.choose(now, max_wait, has_waiting=lanes.node in has_waiting)
            if (lane := choice.lane) is None:
                look_again = min(look_again, choice.ask_again)
                continue
            plan = self._plan_main(lanes, mine) if lane is lanes.main else self._plan(lane, mine)
            if len(plan.asks) > 1:
                # The one that was served last comes last: the answer may be full before that.
                arrival_of = self._turn_of
                asks = sorted(plan.asks, key=lambda ask: arrival_of(ask.topic_partition))
                plan = plan._replace(asks=asks)
            granted = self._buffer.memory.grant_counted(
                lane.session.sizes, self._sizes.of_response(lane.node), len(waiting) - number
            )
            lane.start(now, choice.max_wait)
            fetches.append(Fetch(lane, plan, choice.max_wait, granted))
        return look_again

    def _lone_fetch(self, lanes: NodeConnections, mine: NodeCandidates, now: float) -> Fetch | None:
        """A fetch of the next of the partitions to be fetched alone, when both lanes are free."""
        lane, allowed = lanes.main, self._buffer.allowed
        if lane.busy or lanes.side.busy or lanes.not_before > now:
            return None
        alone = self._alone[lanes.node]
        while alone:
            tp = next(iter(alone))
            del alone[tp]
            ask = mine.ready.get(tp)
            if ask is not None and (allowed is None or tp in allowed):
                mine.whole = False
                self._lanes[tp] = lane
                plan = lane.session.plan([ask._replace(max_bytes=1)])
                granted = self._buffer.memory.grant([ask.max_bytes], 1, 1)
                lane.start(now, 0.0)
                return Fetch(lane, plan, 0.0, granted)
        return None

    def _anything(self, lanes: NodeConnections, mine: NodeCandidates) -> bool:
        """Something is to be asked for that is not in flight."""
        if self._buffer.allowed is None and not lanes.main.busy and not lanes.side.busy:
            return bool(mine.ready)
        return next(self._free(mine, lanes.node, new=lanes.main.busy), None) is not None

    def _free(self, mine: NodeCandidates, node: int, *, new: bool) -> Iterator[Ask]:
        """Partitions to fetch, not in flight; ``new``: since the main lane's latest fetch.

        A fetch at a broker that has lost the leadership, or is dead, is not waited for.
        """
        allowed = self._buffer.allowed
        for tp in mine.changed if new and mine.whole else mine.ready:
            ask = mine.ready.get(tp)
            if ask is not None and (allowed is None or tp in allowed):
                if not self._in_flight(ask, node):
                    yield ask

    def _in_flight(self, ask: Ask, node: int) -> bool:
        lane = self._lanes.get(ask.topic_partition)
        if lane is None or not lane.busy or lane.node != node:
            return False
        known = lane.session.asks.get(ask.topic_partition)
        return known is not None and known.epoch == ask.epoch

    def _plan(self, lane: FetchConnection, mine: NodeCandidates) -> FetchPlan:
        """The side lane fetches what the main lane does not."""
        asks = list(self._free(mine, lane.node, new=True))
        self._lanes.update((ask.topic_partition, lane) for ask in asks)
        return lane.session.plan(asks)

    def _plan_main(self, lanes: NodeConnections, mine: NodeCandidates) -> FetchPlan:
        lane = lanes.main
        on_side: dict[TopicPartition, None] = {}
        changes: dict[TopicPartition, Ask | None] = {}
        whole, mine.whole = mine.whole, self._buffer.allowed is None
        if not whole or not mine.whole:
            wanted = {ask.topic_partition: ask for ask in self._free(mine, lane.node, new=False)}
            changes = {tp: None for tp in lane.session.asks if tp not in wanted} | wanted
            on_side = {tp: None for tp in lanes.side.session.asks if lanes.side.busy}
        else:
            for tp in mine.changed:
                ask = mine.ready.get(tp)
                if ask is not None and self._in_flight(ask, lane.node):
                    on_side[tp], ask = None, None
                changes[tp] = ask
        mine.changed = on_side
        self._lanes.update((tp, lane) for tp, ask in changes.items() if ask is not None)
        return lane.session.update(changes)

    def _crowded_nodes(self) -> set[int]:
        """The brokers of those that will have room when the caller has taken something.

        None where the user has asked for fetches that wait until there is much.
        """
        if self._config.fetch_min_bytes > 1:
            return set()
        found: set[int] = set()
        if self._candidates.has_waiting:
            standing = self._buffer.standing()
            found = {
                node for tp, node in self._candidates.has_waiting.items() if tp not in standing
            }
        if (allowed := self._buffer.allowed) is not None:
            found.update(
                node
                for node, mine in self._candidates.nodes.items()
                if any(tp not in allowed for tp in mine.ready)
            )
        return found
