"""The fetcher, which fills the buffer from all brokers before the caller needs the records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._cluster_view import FetchCluster
from kohort.fetcher._connections import FetchConnection
from kohort.fetcher._parts import FetcherEvents, FetcherOptions, make_parts
from kohort.fetcher._planning import PlannedFetch
from kohort.fetcher._resets import reset_timestamp
from kohort.fetcher._sending import FetchSender
from kohort.fetcher._sessions import end_sessions
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import running_clock, start_soon, weak_callback
from kohort.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = logging.getLogger("kohort.fetcher")


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
        self._cluster = cluster
        self._subscription = subscription
        self._options = options
        self._on_ready = events.on_ready
        self._parts = make_parts(
            cluster,
            subscription,
            options,
            events,
            weak_callback(self.wake),
            weak_callback(self._on_validated),
        )
        self._sender = FetchSender(cluster, options, self._parts, events.notify_waiting_caller)
        self._owned: Collection[TopicPartition] = ()
        self._clock: Callable[[], float] = anyio.current_time
        self._wakeup = anyio.Event()
        self._waiting: anyio.CancelScope | None = None  # made in the event loop

    @property
    def buffer(self) -> FetchBuffer:
        """The buffer of completed fetches, which the caller drains."""
        return self._parts.buffer

    async def run(self) -> None:
        """Fetch until cancelled; never raises otherwise."""
        self._clock = self._sender.clock = running_clock()
        async with anyio.create_task_group() as tasks:
            while True:
                self._wakeup = anyio.Event()
                wake_at, _ = self._start_due(tasks)
                self._waiting = anyio.CancelScope(deadline=wake_at)
                with self._waiting:
                    await self._wakeup.wait()

    def wake(self) -> None:
        """Start the fetches that are due. Call it in the event loop of :meth:`run`."""
        self._wakeup.set()

    def _on_validated(self, partitions: Iterable[TopicPartition]) -> None:
        self._parts.candidates.touch(partitions)
        self.wake()

    def close(self) -> None:
        """Drop the buffered fetches."""
        self.buffer.close()

    async def end_sessions(self, timeout: float) -> None:
        """Close the fetch sessions, so that the brokers free their memory.

        ``timeout`` in seconds; never raises. The fetch connections may be in long polls, so the
        requests use other connections.
        """
        plans = [
            (connection.node, plan)
            for connection in self._parts.planner.all_connections()
            if (plan := connection.session.close()) is not None
            and self._parts.node_retries.not_before(connection.node) == 0.0
        ]
        await end_sessions(self._cluster, self._options.config, plans, timeout)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See :meth:`OffsetLookup.list_offsets`."""
        return await self._parts.offsets.list_offsets(timestamps, timeout=timeout)

    def reset_timestamp(self, strategy: OffsetReset) -> int:
        """Return EARLIEST, LATEST or a time in ms, for a rule other than "none"."""
        return reset_timestamp(strategy, self._options.wall_clock())

    def in_flight(self) -> dict[TopicPartition, tuple[int, float]]:
        """Return broker and start time of the fetches in flight. Any thread may call it."""
        return self._parts.planner.in_flight()

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Return the time of the latest response about the partition, by the loop's clock.

        May be called from any thread.
        """
        with self._subscription.lock:
            state = self._subscription.partition(tp)
            fetched_at = None if state is None else state.status.fetched_at
        if fetched_at is None:
            return None
        connection = self._parts.planner.connection_of(tp)
        session_at = None if connection is None else connection.session.fetched_at(tp)
        return max(fetched_at, session_at or fetched_at)

    def follower(self, tp: TopicPartition) -> int | None:
        """Return the replica chosen for the partition (KIP-392), or None without a choice."""
        return self._parts.replicas.chosen_node(tp)

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the start, with the Java client's names where it has one."""
        return self._parts.counters.as_metrics(self.buffer)

    def _start_due(
        self, tasks: TaskGroup, own: FetchConnection | None = None
    ) -> tuple[float, PlannedFetch | None]:
        """Start all requests that are due. Return the time of the next call.

        A fetch over the connection ``own`` is returned, too, for its task to send.
        """
        now, parts = self._clock(), self._parts
        owned = self._subscription.assigned()
        if owned is not self._owned:
            self._owned = owned
            parts.keep_only(owned)
        try:
            parts.recreated.append_errors()
            wake_at = parts.candidates.refresh(now)
            if resets := parts.candidates.resets.values():
                wake_at = min(wake_at, parts.resets.start(tasks, resets, now))
            if checks := parts.candidates.unvalidated.values():
                wake_at = min(wake_at, parts.validation.start(tasks, checks, now))
            fetches, fetch_at = parts.planner.plan_due(now)
            return min(wake_at, fetch_at), self._start(tasks, fetches, own)
        except Exception:
            # This is a defect, but a fetcher that ends silently would be worse.
            logger.exception("internal error in the fetcher; it continues after a back-off")
            return now + self._options.config.retry_backoff_max_ms / 1000, None

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
            if await self._sender.send(fetch):
                # A waiting thread takes a while to wake up. It gets the interpreter's lock after
                # the next fetch is sent, so the broker works while the thread decodes.
                self._on_ready()
            # This task sends the next fetch over its connection. A new task would start later.
            wake_at, fetch = self._start_due(tasks, fetch.connection)
            if self._waiting is not None:
                self._waiting.deadline = wake_at
