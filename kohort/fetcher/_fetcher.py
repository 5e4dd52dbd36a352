"""The fetcher, which fills the buffer from all brokers before the caller needs the records.

One cycle has these steps. The event loop runs all of them except the last one.

1. ``Candidates`` checks the partitions that changed. ``Positions`` looks missing positions up, and
   validates positions under a new leader.
2. ``FetchPlanner`` gives the partitions that may be fetched to connections. Each planned fetch has
   a task, which ``FetchSender`` serves.
3. The callback that receives the response puts it into the buffer, and may notify a waiting caller.
   The task handles responses with errors, notes facts for the next fetch, and plans that. After
   few records it waits for the pace of the connection first (see ``_pacing``).
4. The caller drains the ``FetchBuffer``. If that makes room, ``on_room`` wakes the fetcher.

The event loop owns the candidates, plans, sessions, sizes, back-offs, leaders and replicas. The
lock of the subscription guards positions and queues. ``FetchMemory`` has a lock for the leases.

A change must keep these invariants:

1. A connection has at most one fetch in flight. It and its reserved bytes are freed however the
   fetch ends, also if planning fails.
2. Fetched records move the fetch offset when they are appended, and the position when a drain
   delivers them. Each move is one step under the lock.
3. Assignment, seek and reset give a partition a new epoch. A result of another epoch is dropped at
   the append, and records of another epoch are dropped at the delivery. Both hold the lock, so a
   late response or a drain never undoes a seek or a rebalance.
4. A paused partition, or one that a rebalance revokes, keeps its buffered fetches. A drain does not
   deliver them. Evicted fetches are fetched again from the position.
5. Decoding, CRC checks, deserializers and ``on_error`` run on the caller's thread, without the
   lock. A fetch being decoded is busy, so no append drops it.
6. Ctrl-C may be raised in any call of a drain, which then puts records and positions back. A drain
   never removes the fetches that it finishes. If an append has removed one, it is fetched again.
   In the async API, Ctrl-C may end the callback of a response. The response then stays BUFFERING,
   and the next request of its session is a full one (see consumer/driver/_delivery).
7. Errors of a partition wait in its queue after the data before them. An error of one partition
   never delays another one.
8. A change that may make a partition fetchable touches it, or no cycle checks it again. See
   ``_candidates`` for the list.
9. Parallel connections to a distant broker keep the invariants of ``_parallel``.
10. A pace never delays a new partition. So a task waits for it only if nothing has called wake()
   since its fetch began, and each later wake() plans again.
11. The fetcher's objects refer to it weakly. So the last reference to a closed consumer frees it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.fetcher._environment import FetchCluster, FetcherEvents, FetcherOptions
from kohort.fetcher._failure_reports import DeniedTopics
from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher._positions import Positions, reset_timestamp
from kohort.fetcher._recreated import RecreatedTopics
from kohort.fetcher._retries import Retries
from kohort.fetcher.buffer._buffer import FetchBuffer
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.fetcher.requests._candidates import Candidates
from kohort.fetcher.requests._connections import MAIN_PURPOSE, FetchConnection
from kohort.fetcher.requests._parallel import ParallelFetches
from kohort.fetcher.requests._planning import FetchInFlight, FetchPlanner, PlannedFetch
from kohort.fetcher.requests._response_intake import ResponseIntake
from kohort.fetcher.requests._sending import FetchSender
from kohort.fetcher.requests._sessions import end_sessions
from kohort.fetcher.requests._sizes import FetchSizes
from kohort.logs import get_logger
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import OneShot, TaskSignal, running_clock, start_soon, weak_callback
from kohort.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = get_logger("kohort.fetcher")


class Fetcher:
    """The loop that fetches every fetchable partition until its share of the buffer is full.

    :meth:`run` is the loop. Call :meth:`wake` in its event loop after each change of the
    subscription or the metadata.
    """

    def __init__(
        self,
        cluster: FetchCluster,
        subscription: SubscriptionState,
        options: FetcherOptions,
        events: FetcherEvents,
    ) -> None:
        config, wake = options.config, weak_callback(self.wake)
        self._cluster = cluster
        self._subscription = subscription
        self._options = options
        self._on_ready = events.on_ready
        self._sizes = FetchSizes(config)
        self.buffer: FetchBuffer = FetchBuffer(
            subscription,
            max_bytes=self._sizes.read_ahead,
            on_room=events.on_room or wake,
            may_deliver=events.may_deliver,
            on_error=config.on_error,
            memory=FetchMemory(config.buffer_memory),
            laggiest_first=config.fetch_order == "lag",
        )
        """The buffer of completed fetches, which the caller drains."""
        queues = self.buffer.queues
        self._recreated = RecreatedTopics(subscription, queues, on_ready=events.on_ready)
        self._retries = options.partition_retries()
        self._leaders = Leaders(cluster, options.backoff, options.rng)
        self._replicas = Replicas(options.metadata_max_age_ms / 1000)
        denied_topics = DeniedTopics(queues, config.on_error, cluster)
        self._positions = Positions(
            cluster,
            subscription,
            queues,
            self._leaders,
            denied_topics,
            options,
            on_ready=events.on_ready,
            wake=wake,
            on_validated=weak_callback(self._on_validated),
        )
        self._intake = ResponseIntake(
            cluster,
            queues,
            self._leaders,
            self._replicas,
            self._positions.validation,
            self._retries,
            self._sizes,
            denied_topics,
        )
        self._candidates = Candidates(
            subscription,
            queues.limits,
            self._leaders,
            self._replicas,
            self._retries,
            self._positions.validation,
            self._sizes.bytes_of,
        )
        self._planner = FetchPlanner(
            self._candidates,
            queues,
            config,
            self._sizes,
            self._intake.arrivals,
            Retries(options.backoff, options.rng),
        )
        self._sender = FetchSender(
            cluster,
            options,
            self.buffer,
            self._planner,
            self._candidates,
            self._intake,
            self._leaders,
            self._replicas,
            events.notify_waiting_caller,
        )
        self._owned: Collection[TopicPartition] = ()
        self._clock: Callable[[], float] = anyio.current_time
        self._woken = TaskSignal()
        self._wakes = 0
        """Number of calls of wake()."""
        self._waiting: anyio.CancelScope | None = None  # made in the event loop

    async def run(self) -> None:
        """Fetch until cancelled; never raises otherwise."""
        self._clock = self._sender.clock = running_clock()
        async with anyio.create_task_group() as tasks:
            while True:
                woken = self._woken.event()
                wake_at, _ = self._start_due(tasks)
                self._waiting = anyio.CancelScope(deadline=wake_at)
                with self._waiting:
                    await woken.wait()

    def wake(self) -> None:
        """Start the fetches that are due. Call it in the event loop of :meth:`run`."""
        self._wakes += 1
        self._woken.notify()

    def keep_bytes(self) -> None:
        """Let records that are deserialized from now on keep the bytes of key and value.

        Any thread may call it.
        """
        self._sender.keep_bytes()

    def prepare(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to open the connections that will fetch these partitions.

        They open while the positions are looked up, which saves two round trips of the first fetch.
        """
        by_node, _ = self._positions.offsets.by_leader(partitions)
        for node in by_node:
            self._cluster.prepare(node, MAIN_PURPOSE)

    def expect(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare for partitions that will be assigned, most likely without a committed offset.

        Their offsets by ``auto_offset_reset`` are requested before they are needed.
        """
        self.prepare(partitions)
        self._positions.first_offsets.expect(partitions)
        self.wake()

    def _on_validated(self, partitions: Iterable[TopicPartition]) -> None:
        self._candidates.touch(partitions)
        self.wake()

    def close(self) -> None:
        """Drop the buffered fetches."""
        self.buffer.close()

    async def end_sessions(self, timeout: float) -> None:
        """Close the fetch sessions, so that the brokers free their memory.

        ``timeout`` in seconds; never raises. The fetch connections may be in long polls, so the
        requests use other connections.
        """
        plans = self._planner.close_sessions()
        await end_sessions(self._cluster, self._options.config, plans, timeout)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See :meth:`OffsetLookup.list_offsets`."""
        return await self._positions.offsets.list_offsets(timestamps, timeout=timeout)

    def reset_timestamp(self, strategy: OffsetReset) -> int:
        """Return EARLIEST, LATEST or a time in ms, for a rule other than "none"."""
        return reset_timestamp(strategy, self._options.wall_clock())

    @property
    def usual_long_poll(self) -> float:
        """The seconds that a broker may delay a fetch, which grow while no records arrive."""
        return self._planner.long_polls.usual

    def in_flight(self) -> dict[TopicPartition, FetchInFlight]:
        """Return the fetches in flight by partition. Any thread may call it."""
        return self._planner.in_flight()

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Return the time of the latest response about the partition, by the loop's clock.

        May be called from any thread.
        """
        with self._subscription.lock:
            state = self._subscription.partition(tp)
            fetched_at = None if state is None else state.status.fetched_at
        if fetched_at is None:
            return None
        connection = self._planner.connection_of(tp)
        session_at = None if connection is None else connection.session.fetched_at(tp)
        return max(fetched_at, session_at or fetched_at)

    @property
    def interval(self) -> float:
        """Seconds between two fetches of a broker while few records arrive at a time."""
        return self._sender.pace.seconds

    def follower(self, tp: TopicPartition) -> int | None:
        """Return the replica chosen for the partition (KIP-392), or None without a choice."""
        return self._replicas.chosen_node(tp)

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the start, with the Java client's names where it has one."""
        pace = self._sender.pace
        return self._intake.counters.as_metrics(self.buffer) | {
            "parallel-connections": self._planner.parallel_connections(),
            "fetches-paced-total": pace.paced_responses,
            "fetch-interval": 1000 * pace.seconds,
        }

    def parallel_fetches(self, node: int) -> ParallelFetches:
        """Return the number of connections to a broker, and their rate. Any thread may call it."""
        return self._planner.parallel_fetches(node)

    def _start_due(
        self, tasks: TaskGroup, own: FetchConnection | None = None
    ) -> tuple[float, PlannedFetch | None]:
        """Start all requests that are due. Return the time of the next call.

        A fetch over the connection ``own`` is returned, too, for its task to send.
        """
        now = self._clock()
        owned = self._subscription.assigned()
        if owned is not self._owned:
            self._owned = owned
            self._keep_only(owned)
        try:
            self._recreated.append_errors()
            candidates = self._candidates
            wake_at = candidates.refresh(now)
            position_at = self._positions.start(
                tasks, candidates.resets.values(), candidates.unvalidated.values(), now
            )
            fetches, fetch_at = self._planner.plan_due(now)
            for new in self._planner.take_new():
                self._cluster.prepare(new.node, new.purpose)
            for unused in self._planner.take_unused():
                self._cluster.close_connection(unused.node, unused.purpose)
            return min(wake_at, position_at, fetch_at), self._start(tasks, fetches, own)
        except Exception:
            # This is a defect, but a fetcher that ends silently would be worse.
            logger.exception("internal error in the fetcher; it continues after a back-off")
            return now + self._options.config.retry_backoff_max_ms / 1000, None

    def _keep_only(self, owned: Collection[TopicPartition]) -> None:
        """Forget the state of partitions that are no longer assigned."""
        self._sizes.keep_only(owned)
        self._retries.keep_only(owned)
        self._leaders.keep_only(owned)
        self._replicas.keep_only(owned)
        self._positions.keep_only(owned)
        self._intake.keep_only(owned)
        self._planner.keep_only(owned)

    def _start(
        self, tasks: TaskGroup, fetches: Iterable[PlannedFetch], own: FetchConnection | None
    ) -> PlannedFetch | None:
        """Start a task for each fetch, and return the one over the connection ``own``."""
        following = None
        for fetch in fetches:
            if fetch.connection is own:
                following = fetch
            else:
                start_soon(tasks, self._fetch, tasks, fetch)
        return following

    async def _fetch(self, tasks: TaskGroup, first: PlannedFetch) -> None:
        """Send fetches over one connection while the next fetch is due at once."""
        fetch: PlannedFetch | None = first
        while fetch is not None:
            wakes, connection = self._wakes, fetch.connection
            if await self._sender.send(fetch):
                # A waiting thread takes a while to wake up. It gets the interpreter's lock after
                # the next fetch is sent, so the broker works while the thread decodes.
                self._on_ready()
            if connection.paced_until > self._clock() and wakes == self._wakes:
                # Only this response has changed partitions, so nothing else can be due. The
                # caller drains meanwhile, so one check notes both.
                await OneShot().wait(connection.paced_until - self._clock())
            # This task sends the next fetch over its connection. A new task would start later.
            wake_at, fetch = self._start_due(tasks, connection)
            if self._waiting is not None and self._waiting.deadline != wake_at:
                self._waiting.deadline = wake_at
