"""The plan of the next fetches: their partitions, connections and sizes.

The session of the main connection keeps its partitions from one fetch to the next. Therefore only
the changed candidates are checked. All candidates are checked while memory is short, because the
choice differs each time. So they are while a distant broker has parallel connections.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from kohort.config import FetchConfig
from kohort.fetcher._retries import Retries
from kohort.fetcher.buffer._memory import Grant
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.fetcher.requests._candidates import Candidates, NodeCandidates
from kohort.fetcher.requests._connections import FetchConnection, LongPolls, NodeConnections
from kohort.fetcher.requests._parallel import IDLE_SECONDS, Delivery, ParallelFetches, is_distant
from kohort.fetcher.requests._request import FetchRequestPlan, FetchResult, PartitionRequest
from kohort.fetcher.requests._sizes import FLIGHT_FACTOR, FetchSizes
from kohort.logs import get_logger
from kohort.transport import Line
from kohort.types import NamedTuple, TopicPartition

logger = get_logger("kohort.fetcher")

UNKNOWN_LINE = Line()


class PlannedFetch(NamedTuple):
    """A fetch to send over a connection, its long poll in seconds and its reserved bytes."""

    connection: FetchConnection
    plan: FetchRequestPlan
    max_wait: float
    granted: Grant


class FetchInFlight(NamedTuple):
    """The broker of a fetch, its start time, and the seconds that the broker may delay it."""

    node: int
    sent_at: float
    long_poll: float


class FetchPlanner:
    """The plan that assigns every candidate to a connection of its broker.

    ``arrivals`` orders partitions. The partition with the latest records has the highest number.
    """

    def __init__(
        self,
        candidates: Candidates,
        queues: PartitionQueues,
        config: FetchConfig,
        sizes: FetchSizes,
        arrivals: Mapping[TopicPartition, int],
        node_retries: Retries[int],
    ) -> None:
        self._candidates = candidates
        self._queues = queues
        self._limits = queues.limits
        self._config = config
        self._sizes = sizes
        self._arrivals = arrivals
        self._node_retries = node_retries
        self.long_polls: LongPolls = LongPolls.of(config)
        self._nodes: dict[int, NodeConnections] = {}
        self.latest_connections: dict[TopicPartition, FetchConnection] = {}
        """The connection that requested each partition last."""
        self._alone: dict[int, dict[TopicPartition, None]] = {}
        self._new: list[FetchConnection] = []
        self._unused: list[FetchConnection] = []

    def connections(self, node: int) -> NodeConnections:
        """Return the connections to a broker."""
        connections = self._nodes.get(node)
        if connections is None:
            sessions = self._config.enable_incremental_fetch_sessions
            connections = self._nodes[node] = NodeConnections(node, sessions=sessions)
        return connections

    def all_connections(self) -> list[FetchConnection]:
        """Return the connections to all brokers."""
        return [
            connection
            for connections in list(self._nodes.values())
            for connection in connections.all
        ]

    def connection_of(self, tp: TopicPartition) -> FetchConnection | None:
        """Return the connection that requested the partition last. Any thread may call it."""
        return self.latest_connections.get(tp)

    def in_flight(self) -> dict[TopicPartition, FetchInFlight]:
        """Return the fetches in flight by partition. Any thread may call it."""
        return {
            tp: FetchInFlight(connection.node, connection.sent_at, connection.long_poll)
            for connection in self.all_connections()
            if connection.is_busy
            for tp in list(connection.session.requests)
            if self.latest_connections.get(tp) is connection
        }

    def close_sessions(self) -> list[tuple[int, FetchRequestPlan]]:
        """Return the last request of each session, with its broker, except during a back-off."""
        return [
            (connection.node, plan)
            for connection in self.all_connections()
            if (plan := connection.session.close()) is not None
            and self._node_retries.not_before(connection.node) == 0.0
        ]

    def note_response(
        self,
        node: int,
        results: Collection[FetchResult],
        delivery: Delivery,
        *,
        largest: int,
    ) -> None:
        """Adapt the next fetches to a response, by the rules of ParallelPolicy and FetchSizes.

        It had ``largest`` bytes of one partition.
        """
        connections, sizes = self.connections(node), self._sizes
        rate, proven = delivery.bytes_per_second, 0.0
        committed = self._config.isolation_level == "read_committed"
        connections.note_behind(results, committed=committed)
        if is_distant(delivery.round_trip):
            policy, before = connections.policy, connections.policy.connections
            behind = len(connections.behind)
            policy.note_response(delivery, behind)
            if policy.connections != before:
                logger.debug("broker %d: fetching over %d connections", node, policy.connections)
            most = max(policy.rate, rate)
            sizes.note_distance(node, delivery.round_trip, most, policy.connections, behind=behind)
            proven = FLIGHT_FACTOR * delivery.round_trip * delivery.least_rate
        elif delivery.round_trip < math.inf and sizes.note_near(
            node
        ):  # a first response may have taken long
            connections.policy.reset()
        seconds = delivery.at - delivery.sent_at
        sizes.note_response(node, largest, delivery.size, seconds, rate, proven=proven)
        self._limits.read_ahead = sizes.read_ahead

    def note_success(self, node: int) -> None:
        """Forget the failures of a broker."""
        self._node_retries.succeeded(node)

    def note_failure(self, connection: FetchConnection, now: float) -> None:
        """Fetch from a broker after a back-off only, unless a parallel connection failed."""
        connections = self.connections(connection.node)
        if connection is connections.extra:
            connections.note_extra_failure(now)
        if connections.note_parallel_failure(connection, now):
            self._unused.append(connection)
        else:
            not_before = self._node_retries.failed(connection.node, now)
            # The broker may have throttled another connection for longer.
            connections.not_before = max(connections.not_before, not_before)
            connections.note_news()

    def parallel_fetches(self, node: int) -> ParallelFetches:
        """Return the number of connections to a broker, and their rate. Any thread may call it."""
        found = self._nodes.get(node)
        if found is None:
            return ParallelFetches(1, 0.0)
        return ParallelFetches(1 + len(found.parallel), found.policy.rate)

    def parallel_connections(self) -> int:
        """Return the number of parallel connections to all brokers. Any thread may call it."""
        return sum(len(connections.parallel) for connections in list(self._nodes.values()))

    def take_new(self) -> list[FetchConnection]:
        """Return the connections to open since the latest call."""
        new, self._new = self._new, []
        return new

    def take_unused(self) -> list[FetchConnection]:
        """Return the connections that are no longer needed since the latest call."""
        unused, self._unused = self._unused, []
        return unused

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for tp in [tp for tp in self.latest_connections if tp not in partitions]:
            del self.latest_connections[tp]
        for connections in self._nodes.values():
            for tp in [tp for tp in connections.behind if tp not in partitions]:
                del connections.behind[tp]

    def fetch_alone(self, node: int, partitions: Iterable[TopicPartition]) -> None:
        """Fetch one batch of each of these partitions alone, before other fetches of the broker."""
        self._alone.setdefault(node, {}).update(dict.fromkeys(partitions))

    def plan_due(self, now: float) -> tuple[list[PlannedFetch], float]:
        """Return the fetches to start now, and the time of the next call.

        Their connections are marked busy.
        """
        fetches: list[PlannedFetch] = []
        try:
            return fetches, self._add_due(fetches, now)
        except BaseException:  # without a request, a connection would be busy for ever
            self._cancel(fetches)
            raise

    def _cancel(self, fetches: Iterable[PlannedFetch]) -> None:
        for fetch in fetches:
            fetch.connection.finish()
            self._limits.memory.release_grant(fetch.granted)
        for connection in self.all_connections():
            if not connection.is_busy:
                connection.session.restart()  # the broker does not get the latest changes

    def _add_due(self, fetches: list[PlannedFetch], now: float) -> float:
        wake_at = float("inf")
        if self._limits.is_ample:
            return wake_at  # the next drain that makes room calls on_room
        for connections in self._nodes.values():
            if connections.parallel or connections.is_parallel:
                self._unused += connections.remove_idle(now)
                wake_at = now + IDLE_SECONDS
        nodes_with_waiting = self._nodes_with_waiting()
        waiting = [
            (connections, candidates)
            for node, candidates in self._candidates.nodes.items()
            if self._has_unfetched(connections := self.connections(node), candidates)
        ]
        for number, (connections, candidates) in enumerate(waiting):
            if self._alone.get(connections.node):
                if (fetch := self._plan_alone(connections, candidates, now)) is not None:
                    fetches.append(fetch)
                    continue
                if connections.not_before > now:
                    wake_at = min(wake_at, connections.not_before)
                    continue
                if connections.is_busy:
                    continue
            sharers = len(waiting) - number
            withheld: Collection[TopicPartition] = ()
            if connections.is_parallel:
                planned, withheld = self._plan_parallel(connections, candidates, now, sharers)
                fetches += planned
                if not self._has_unfetched(connections, candidates, withheld):
                    continue
                if self._is_memory_taken(connections):
                    self._limits.is_fetcher_waiting = True
                    continue
            choice = connections.choose(
                now,
                self.long_polls.usual,
                has_waiting=connections.node in nodes_with_waiting,
                has_new=connections.is_paced(now) and self._has_new(candidates, connections.node),
            )
            if choice.connection is None and self._is_backlog_delayed(connections, candidates, now):
                choice = connections.choose_extra(self.long_polls.usual)
            if (connection := choice.connection) is None:
                wake_at = min(wake_at, choice.retry_at)
                continue
            plan = (
                self._plan_main(connections, candidates, withheld)
                if connection is connections.main
                else self._plan(connection, candidates, withheld)
            )
            if len(plan.requests) > 1:
                # The partition with the latest records is last, because the response may be full
                # before it.
                arrivals = self._arrivals
                numbers = [arrivals.get(request[0], 0) for request in plan.requests]
                order = sorted(range(len(numbers)), key=numbers.__getitem__)
                plan = plan._replace(requests=[plan.requests[number] for number in order])
            sizes, node = self._sizes, connection.node
            most = sizes.response_bytes(node)
            if connections.is_opening and connection is connections.main:
                most = max(most, sizes.opening_bytes(node))
            granted = self._limits.memory.grant_counted(connection.session.sizes, most, sharers)
            connection.start(now, choice.max_wait)
            fetches.append(PlannedFetch(connection, plan, choice.max_wait, granted))
        return wake_at

    def _plan_alone(
        self, connections: NodeConnections, candidates: NodeCandidates, now: float
    ) -> PlannedFetch | None:
        """Return a fetch of the next partition to fetch alone, if all connections are free."""
        connection, allowed = connections.main, self._limits.allowed
        if connections.is_busy or connections.not_before > now:
            return None
        alone = self._alone[connections.node]
        while alone:
            tp = next(iter(alone))
            del alone[tp]
            request = candidates.ready.get(tp)
            if request is not None and (allowed is None or tp in allowed):
                candidates.has_all_changes = False
                self.latest_connections[tp] = connection
                plan = connection.session.plan([request._replace(max_bytes=1)])
                granted = self._limits.memory.grant([request.max_bytes], 1, 1)
                connection.start(now, 0.0)
                return PlannedFetch(connection, plan, 0.0, granted)
        return None

    def _plan_parallel(
        self,
        connections: NodeConnections,
        candidates: NodeCandidates,
        now: float,
        sharers: int,
    ) -> tuple[list[PlannedFetch], Collection[TopicPartition]]:
        """Plan fetches of partitions that are behind over the free parallel connections.

        Return them, and the partitions that the main and the extra connection leave out. The main
        connection gets its share if it is free. The largest size of its fetch is always granted,
        so the parallel ones must not exceed the memory by theirs, too.
        """
        allowed, node = self._limits.allowed, connections.node
        candidates.has_all_changes = False
        due = [
            request
            for request in connections.requests_behind(candidates.ready)
            if (allowed is None or request.topic_partition in allowed)
            and not self._in_flight(request, node)
        ]
        arrivals = self._arrivals
        due.sort(key=lambda request: arrivals.get(request.topic_partition, 0))
        count = len(connections.parallel)
        free = connections.free_parallel(now) if connections.not_before <= now else []
        self._new += connections.parallel[count:]
        left = len(free) + (not connections.main.is_busy)
        # One connection with many partitions and others with few would deliver less. The main one
        # may be in a long poll for partitions that are not behind.
        main, behind = connections.main, connections.behind
        is_away = main.is_busy and main not in map(self.latest_connections.get, behind)
        fair = math.ceil(len(behind) / max(1, connections.policy.connections - is_away))
        share = 0 if main.is_busy else min(fair, math.ceil(len(due) / left))
        if connections.is_opening and not main.is_busy:
            # Those that open now deliver nothing for two round trips.
            others = fair * len(free) if count else 0
            share = max(share, min(len(due) - others, math.ceil(len(behind) / 2)))
        withheld = {request.topic_partition: None for request in due[share:]}
        fetches: list[PlannedFetch] = []
        memory, most = self._limits.memory, self._sizes.response_bytes(node)
        for number, connection in enumerate(free):
            due = due[share:]
            if not due:
                break
            share = min(fair, math.ceil(len(due) / (len(free) - number)))
            if memory.left < min(most, max(request.max_bytes for request in due[:share])):
                self._limits.is_fetcher_waiting = True
                break
            plan = connection.session.plan(due[:share])
            self.latest_connections.update(
                (request.topic_partition, connection) for request in due[:share]
            )
            sizes = connection.session.sizes
            granted = memory.grant_counted(sizes, most, sharers)
            connection.start(now, 0.0)
            fetches.append(PlannedFetch(connection, plan, 0.0, granted))
        return fetches, withheld

    def _is_memory_taken(self, connections: NodeConnections) -> bool:
        """True if parallel fetches are in flight and leave no memory for one more partition.

        Without any, a fetch may exceed the memory by one partition, so that records arrive.
        """
        return connections.has_parallel_fetch and (
            self._limits.memory.left < self._sizes.partition_bytes(connections.node)
        )

    def _has_unfetched(
        self,
        connections: NodeConnections,
        candidates: NodeCandidates,
        withheld: Collection[TopicPartition] = (),
    ) -> bool:
        """True if a partition may be fetched, is not ``withheld`` and not in flight."""
        if self._limits.allowed is None and not connections.is_busy and not withheld:
            return bool(candidates.ready)
        new = connections.main.is_busy and not connections.is_parallel
        found = self._unfetched(candidates, connections.node, new=new)
        return any(request.topic_partition not in withheld for request in found)

    def _unfetched(
        self, candidates: NodeCandidates, node: int, *, new: bool
    ) -> Iterator[PartitionRequest]:
        """Yield requests for the partitions that are not in flight at this broker.

        ``new``: only changes since the latest fetch over the main connection. A fetch in flight at
        a former leader does not delay the partition.
        """
        allowed = self._limits.allowed
        for tp in candidates.changed if new and candidates.has_all_changes else candidates.ready:
            request = candidates.ready.get(tp)
            if request is not None and (allowed is None or tp in allowed):
                if not self._in_flight(request, node):
                    yield request

    def _is_backlog_delayed(
        self, connections: NodeConnections, candidates: NodeCandidates, now: float
    ) -> bool:
        """True if partitions that are behind wait for a fetch of others, which has none of them."""
        if not connections.is_extra_free(now):
            return False
        allowed, found = self._limits.allowed, False
        for request in connections.requests_behind(candidates.ready):
            if self._in_flight(request, connections.node):
                return False
            found = found or allowed is None or request.topic_partition in allowed
        return found

    def _has_new(self, candidates: NodeCandidates, node: int) -> bool:
        """True if no fetch of this broker has requested one of the partitions at its epoch."""
        allowed = self._limits.allowed
        for tp in candidates.changed if candidates.has_all_changes else candidates.ready:
            request = candidates.ready.get(tp)
            if request is not None and (allowed is None or tp in allowed):
                connection = self.latest_connections.get(tp)
                if connection is None or connection.node != node:
                    return True
                known = connection.session.requests.get(tp)
                if known is None or known.epoch != request.epoch:
                    return True
        return False

    def _in_flight(self, request: PartitionRequest, node: int) -> bool:
        connection = self.latest_connections.get(request.topic_partition)
        if connection is None or not connection.is_busy or connection.node != node:
            return False
        known = connection.session.requests.get(request.topic_partition)
        return known is not None and known.epoch == request.epoch

    def _plan(
        self,
        connection: FetchConnection,
        candidates: NodeCandidates,
        withheld: Collection[TopicPartition],
    ) -> FetchRequestPlan:
        """Plan a fetch over the extra connection, of partitions that are not in flight."""
        requests = [
            request
            for request in self._unfetched(candidates, connection.node, new=True)
            if request.topic_partition not in withheld
        ]
        self.latest_connections.update(
            (request.topic_partition, connection) for request in requests
        )
        return connection.session.plan(requests)

    def _plan_main(
        self,
        connections: NodeConnections,
        candidates: NodeCandidates,
        withheld: Collection[TopicPartition],
    ) -> FetchRequestPlan:
        connection = connections.main
        on_extra: dict[TopicPartition, None] = {}
        changes: dict[TopicPartition, PartitionRequest | None] = {}
        had_all_changes = candidates.has_all_changes
        candidates.has_all_changes = self._limits.allowed is None and not connections.is_parallel
        if not had_all_changes or not candidates.has_all_changes:
            wanted = {
                request.topic_partition: request
                for request in self._unfetched(candidates, connection.node, new=False)
                if request.topic_partition not in withheld
            }
            changes = {tp: None for tp in connection.session.requests if tp not in wanted} | wanted
            on_extra = {
                tp: None for tp in connections.extra.session.requests if connections.extra.is_busy
            }
        else:
            for tp in candidates.changed:
                request = candidates.ready.get(tp)
                if request is not None and connections.extra.is_busy:
                    if self._in_flight(request, connection.node):
                        on_extra[tp], request = None, None
                changes[tp] = request
        candidates.changed = on_extra
        for tp, request in changes.items():
            if request is not None:
                self.latest_connections[tp] = connection
        return connection.session.update(changes)

    def _nodes_with_waiting(self) -> set[int]:
        """Return the brokers of partitions that have room after the next drain.

        The set is empty if ``fetch_min_bytes`` asks for long polls.
        """
        if self._config.fetch_min_bytes > 1:
            return set()
        found: set[int] = set()
        if self._candidates.waiting_for_room:
            permanent_errors = self._queues.permanent_errors()
            found = {
                node
                for tp, node in self._candidates.waiting_for_room.items()
                if tp not in permanent_errors
            }
        if (allowed := self._limits.allowed) is not None:
            found.update(
                node
                for node, candidates in self._candidates.nodes.items()
                if any(tp not in allowed for tp in candidates.ready)
            )
        return found
