"""The fetcher, which fills the buffer from all brokers before the caller needs the records."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import anyio

from kohort.config import Deserialize, FetchConfig
from kohort.errors import KafkaError, broker_error
from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._candidates import Candidates
from kohort.fetcher._cluster_view import FetchCluster, PooledResponse
from kohort.fetcher._completed import DecodeOptions
from kohort.fetcher._connections import FetchConnection
from kohort.fetcher._counters import FetchCounters
from kohort.fetcher._deserialize import record_deserializer
from kohort.fetcher._failure_reports import DENIED_BACKOFF_MS, DeniedTopics
from kohort.fetcher._leaders import Leaders
from kohort.fetcher._lease import SharedLease
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._offsets import OffsetLookup
from kohort.fetcher._oversized import OversizedBatch, OversizedFetch, find_batch
from kohort.fetcher._planning import FetchPlanner, PlannedFetch
from kohort.fetcher._received_response import ReceivedResponse
from kohort.fetcher._recreated import RecreatedTopics
from kohort.fetcher._replicas import Replicas
from kohort.fetcher._request import fetch_request, partitions_of, read_results
from kohort.fetcher._resets import PositionResets, reset_timestamp
from kohort.fetcher._response_intake import ResponseIntake
from kohort.fetcher._retries import Retries
from kohort.fetcher._session_end import end_sessions
from kohort.fetcher._sessions import SESSION_ERRORS
from kohort.fetcher._sizes import FetchSizes
from kohort.fetcher._validation import Validation
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import (
    Backoff,
    OversizedFrameError,
    RepeatedLog,
    running_clock,
    start_soon,
    weak_callback,
)
from kohort.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.protocol.messages import FetchResponse

    _Response = PooledResponse[FetchResponse]
    _Lease = SharedLease | None

logger = logging.getLogger("kohort.fetcher")

SMALL_RESPONSE_BYTES = 16 << 10
"""Bytes that the caller decodes quickly. For larger responses, the next fetch is sent first."""


class Fetcher:
    """The loop that fetches every fetchable partition until its share of the buffer is full.

    :meth:`run` is the loop. Call :meth:`wake` in its event loop after each change of the
    subscription or the metadata. ``on_ready`` is called when there are records or errors to drain.
    ``notify_waiting_caller`` is called before it, in the callback that received a small response.
    It returns True if it notified the caller. :meth:`FetchBuffer.drain` calls ``on_room`` on the
    caller's thread when the fetcher waits for room. While ``may_deliver`` is False, drains return
    nothing. ``wall_clock`` returns seconds since 1970.
    """

    def __init__(
        self,
        cluster: FetchCluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        *,
        wall_clock: Callable[[], float],
        on_ready: Callable[[], None] = lambda: None,
        notify_waiting_caller: Callable[[], bool] = lambda: False,
        on_room: Callable[[], None] | None = None,
        may_deliver: Callable[[], bool] = lambda: True,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
        rack: str | None = None,
        metadata_max_age_ms: int,
        rng: random.Random | None = None,
        first_reset: Callable[[TopicPartition], OffsetReset | None] | None = None,
    ) -> None:
        rng = rng or random.Random()
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._rack = rack or ""
        self._on_ready = on_ready
        self._notify_waiting_caller = notify_waiting_caller
        self._wall_clock = wall_clock
        self._options = DecodeOptions(
            check_crcs=config.check_crcs,
            budget=config.decompression_max_bytes,
            deserialize=record_deserializer(key_deserializer, value_deserializer),
        )
        self._largest = max(config.fetch_max_bytes, config.max_partition_fetch_bytes)
        self._sizes = FetchSizes(config)
        self.buffer: FetchBuffer = FetchBuffer(
            subscription,
            max_bytes=self._sizes.read_ahead,
            on_room=on_room or weak_callback(self.wake),
            may_deliver=may_deliver,
            on_error=config.on_error,
            memory=FetchMemory(config.buffer_memory),
            laggiest_first=config.fetch_order == "lag",
        )
        self.offsets: OffsetLookup = OffsetLookup(cluster, config, rng=rng)
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        denied_backoff = Backoff.from_ms(DENIED_BACKOFF_MS, metadata_max_age_ms)
        denied_topics = DeniedTopics(self.buffer, config.on_error, cluster)
        self._retries: Retries[TopicPartition] = Retries(backoff, rng, denied_backoff)
        self._leaders = Leaders(cluster, backoff, rng)
        self._node_retries: Retries[int] = Retries(backoff, rng)
        self._repeats = RepeatedLog(logger)
        self._replicas = Replicas(metadata_max_age_ms / 1000)
        self._validation = Validation(
            cluster,
            subscription,
            self.buffer,
            Retries(backoff, rng, denied_backoff),
            denied_topics,
            on_done=weak_callback(self._validated),
            on_ready=on_ready,
        )
        self._resets = PositionResets(
            self._leaders,
            subscription,
            self.offsets,
            self.buffer,
            Retries(backoff, rng, denied_backoff),
            denied_topics,
            on_found=weak_callback(self.wake),
            on_position=self._validation.mark_validated,
            on_ready=on_ready,
            timestamp=weak_callback(self.reset_timestamp),
            first_reset=first_reset or (lambda tp: subscription.default_reset),
        )
        self._recreated = RecreatedTopics(subscription, self.buffer, on_ready=on_ready)
        self._counters = FetchCounters()
        self._intake = ResponseIntake(
            cluster,
            self.buffer,
            self._leaders,
            self._replicas,
            self._validation,
            self._retries,
            self._counters,
            denied_topics,
        )
        self._candidates = Candidates(
            subscription,
            self.buffer,
            self._leaders,
            self._replicas,
            self._retries,
            self._validation,
            weak_callback(self._size_of),
        )
        self._planner = FetchPlanner(
            self._candidates, self.buffer, config, self._sizes, self._intake.arrival_of
        )
        self._owned: Collection[TopicPartition] = ()
        self._clock: Callable[[], float] = anyio.current_time
        self._wakeup = anyio.Event()
        self._waiting: anyio.CancelScope | None = None  # made in the event loop
        self._following: FetchConnection | None = None  # the connection whose task plans
        self._follows: PlannedFetch | None = None  # the next fetch over this connection

    async def run(self) -> None:
        """Fetch until cancelled; never raises otherwise."""
        self._clock = running_clock()
        async with anyio.create_task_group() as tasks:
            while True:
                self._wakeup = anyio.Event()
                self._waiting = anyio.CancelScope(deadline=self._start_due(tasks))
                with self._waiting:
                    await self._wakeup.wait()

    def wake(self) -> None:
        """Start the fetches that are due. Call it in the event loop of :meth:`run`."""
        self._wakeup.set()

    def _validated(self, partitions: Iterable[TopicPartition]) -> None:
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
        plans = [
            (connection.node, plan)
            for connection in self._planner.all_connections()
            if (plan := connection.session.close()) is not None
            and self._node_retries.not_before(connection.node) == 0.0
        ]
        await end_sessions(self._cluster, self._config, plans, timeout)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See :meth:`OffsetLookup.list_offsets`."""
        return await self.offsets.list_offsets(timestamps, timeout=timeout)

    def reset_timestamp(self, strategy: OffsetReset) -> int:
        """Return EARLIEST, LATEST or a time in ms, for a rule other than "none"."""
        return reset_timestamp(strategy, self._wall_clock())

    def in_flight(self) -> dict[TopicPartition, tuple[int, float]]:
        """Return broker and start time of the fetches in flight. Any thread may call it."""
        return self._planner.in_flight()

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Return the time of the latest response about the partition, by the loop's clock.

        May be called from any thread.
        """
        with self._subscription.lock:
            state = self._subscription.partition(tp)
        if state is None or state.fetched_at is None:
            return None
        connection = self._planner.connection_of(tp)
        session_at = None if connection is None else connection.session.fetched_at(tp)
        return max(state.fetched_at, session_at or state.fetched_at)

    def follower(self, tp: TopicPartition) -> int | None:
        """Return the replica chosen for the partition (KIP-392), or None without a choice."""
        return self._replicas.chosen_node(tp)

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the start, with the Java client's names where it has one."""
        return self._counters.as_metrics(self.buffer)

    def _forget_unassigned(self, owned: frozenset[TopicPartition]) -> None:
        """Forget the state of partitions that are no longer assigned."""
        self._owned = owned
        self._sizes.partitions = len(owned)
        self._retries.keep_only(owned)
        self._leaders.keep_only(owned)
        self._replicas.keep_only(owned)
        self._validation.keep_only(owned)
        self._intake.keep_only(owned)
        self._planner.keep_only(owned)

    def _size_of(self, tp: TopicPartition, node: int) -> int:
        return max(self._intake.sizes.get(tp, 0), self._sizes.partition_bytes(node))

    # --- requests -------------------------------------------------------------------------------

    def _start_due(self, tasks: TaskGroup) -> float:
        """Start all requests that are due, and return the time of the next check."""
        now = self._clock()
        owned = self._subscription.assigned()
        if owned is not self._owned:
            self._forget_unassigned(owned)
        try:
            self._recreated.append_errors()
            candidates = self._candidates
            wake_at = candidates.refresh(now)
            if resets := candidates.resets.values():
                wake_at = min(wake_at, self._resets.start(tasks, resets, now))
            if checks := candidates.unvalidated:
                wake_at = min(wake_at, self._validation.start(tasks, checks, now))
            return min(wake_at, self._start_fetches(tasks, now))
        except Exception:
            # This is a defect, but a fetcher that ends silently would be worse.
            logger.exception("internal error in the fetcher; it continues after a back-off")
            return now + self._config.retry_backoff_max_ms / 1000

    def _start_fetches(self, tasks: TaskGroup, now: float) -> float:
        fetches, wake_at = self._planner.plan_due(now)
        for fetch in fetches:
            if fetch.connection is self._following:
                self._follows = fetch
            else:
                start_soon(tasks, self._fetch, tasks, fetch)
        return wake_at

    async def _fetch(self, tasks: TaskGroup, first: PlannedFetch) -> None:
        """Send fetches over one connection while the next fetch is due at once."""
        fetch: PlannedFetch | None = first
        while fetch is not None:
            if await self._fetch_once(fetch):
                # A waiting thread takes a while to wake up. It gets the interpreter's lock after
                # the next fetch is sent, so the broker works while the thread decodes.
                self._on_ready()
            # This task sends the next fetch over its connection. A new task would start later.
            self._following, self._follows = fetch.connection, None
            wake_at = self._start_due(tasks)
            self._following, fetch = None, self._follows
            if self._waiting is not None:
                self._waiting.deadline = wake_at

    async def _fetch_once(self, fetch: PlannedFetch) -> bool:
        """Send a fetch, wait, and put the response into the buffer.

        Returns True if the caller must be notified.
        """
        connection, plan, max_wait, granted = fetch
        max_wait_ms = int(max_wait * 1000)
        received, ready = ReceivedResponse(), False
        is_kept = self._replicas.any_kept_on_leader(connection.session.requests)
        try:
            pooled = await self._cluster.request_leased(
                fetch_request(
                    self._config,
                    plan,
                    max_wait_ms,
                    granted.max_bytes,
                    rack="" if is_kept else self._rack,
                ),
                node=connection.node,
                purpose=connection.purpose,
                timeout_ms=self._config.request_timeout_ms + max_wait_ms,
                max_version=plan.max_version,
                on_response=partial(self._receive, fetch, received),
            )
            if received.error is not None:
                raise received.error
            if not received.is_buffering:
                self._buffer_response(connection, received, pooled)
            ready = self._note_response(connection, received)
        except OversizedFrameError as error:
            connection.session.restart()
            ready = self._note_oversized(connection, error)
        except KafkaError as error:
            connection.session.restart()
            ready = self._note_node_failure(connection, error)
        except Exception as error:
            connection.session.restart()
            logger.exception("fetching from broker %d failed", connection.node)
            failure = KafkaError(f"fetching failed: {error!r}")
            ready = self._note_node_failure(connection, failure)
        finally:
            connection.finish()
            self.buffer.memory.release_grant(granted)
        return ready and not received.is_caller_notified

    # --- responses ------------------------------------------------------------------------------

    def _receive(self, fetch: PlannedFetch, received: ReceivedResponse, pooled: _Response) -> None:
        """Buffer a response without errors in the callback that received it; never raises.

        A waiting caller gets its records one iteration of the event loop earlier. The task of the
        fetch buffers other responses.
        """
        try:
            received.receive(pooled, fetch.granted.max_bytes)
            if received.has_no_errors:
                self._buffer_response(fetch.connection, received, pooled)
            if received.is_ready and received.size <= SMALL_RESPONSE_BYTES:
                received.is_caller_notified = self._notify_waiting_caller()
        except Exception as error:
            received.error = error

    def _buffer_response(
        self, connection: FetchConnection, received: ReceivedResponse, pooled: _Response
    ) -> None:
        """Put the records into the buffer."""
        received.is_buffering = True
        received.now = self._clock()
        response = pooled.response
        memory = self.buffer.memory
        lease = SharedLease(memory.count(pooled, received.size)) if pooled.is_pooled else None
        try:
            if not response.error_code:
                self._buffer_partitions(connection, received, response, lease)
            received.is_buffered = True
        finally:
            if lease is not None:
                lease.release()

    def _buffer_partitions(
        self,
        connection: FetchConnection,
        received: ReceivedResponse,
        response: FetchResponse,
        lease: _Lease,
    ) -> None:
        session, now, had_room = connection.session, received.now, received.had_room
        partitions = partitions_of(response, session.requests, session.topic_names)
        received.partitions = partitions
        if not received.has_no_errors:
            self._leaders.learn(response, partitions)
        connection_of, known = self._planner.connection_of, session.requests
        requests = {tp: known[tp] for tp in partitions if connection_of(tp) is connection}
        received.results = read_results(
            partitions, requests, options=self._options, lease=lease, largest=self._largest
        )
        for tp, result in received.results.items():
            if self._intake.add(connection.node, requests[tp], result, now, had_room=had_room):
                received.is_ready = True

    def _note_response(self, connection: FetchConnection, received: ReceivedResponse) -> bool:
        """Note the rest of a response, and return True if there are records or errors to drain."""
        session, node = connection.session, connection.node
        now, response = received.now, received.response
        if response is None or not received.is_buffered:
            session.restart()  # Ctrl-C was raised in the callback
            return True
        self._counters.note_response(now - connection.sent_at)
        self._sizes.note_response(node, received.largest, received.size, now - connection.sent_at)
        self.buffer.read_ahead = self._sizes.read_ahead
        if response.error_code:
            is_session_lost = session.is_incremental and response.error_code in SESSION_ERRORS
            session.restart(response.error_code)
            error = broker_error(response.error_code)
            if is_session_lost:
                logger.debug("broker %d: %s. A full fetch starts a new session", node, str(error))
                return False
            return self._note_node_failure(connection, error)
        self._node_retries.succeeded(node)
        self._repeats.ended(node)
        self._intake.log_failures()
        self._candidates.touch(received.partitions)
        partitions, had_room = received.partitions, received.had_room
        up_to_date = session.note_response(response.session_id, partitions, now)
        newly = session.newly_up_to_date(up_to_date, partitions, had_room=had_room)
        if newly:
            notes = [
                (tp, session.requests[tp].epoch, watermarks)
                for tp, watermarks in newly.items()
                if self._planner.connection_of(tp) is connection
            ]
            self._intake.note_up_to_date(notes, now, had_room=had_room)
        pause = response.throttle_time_ms / 1000
        self._counters.throttle_max = max(self._counters.throttle_max, pause)
        if now < connection.until and received.is_empty():
            # An empty response before the end of the long poll must not cause a busy loop.
            # Partitions with errors have separate back-offs and must not delay the others.
            pause = max(pause, min(self._config.retry_backoff_ms / 1000, connection.until - now))
        connections = self._planner.connections(node)
        if received.is_ready:
            connections.note_records()
        connections.not_before = max(connections.not_before, now + pause if pause > 0 else 0.0)
        return received.is_ready

    def _note_oversized(self, connection: FetchConnection, error: OversizedFrameError) -> bool:
        """Find the batch that is too large, and return True if there is an error to raise.

        A partition that may fit alone, or that the response does not name, is fetched alone.
        """
        self._counters.fetch_errors += 1
        node, requests = connection.node, connection.session.requests
        connections = self._planner.connections(node)
        connections.not_before = self._clock() + self._config.retry_backoff_ms / 1000
        found = find_batch(error.head, error.version, connection.session.topic_names)
        if found is not None and found.topic_partition not in requests:
            found = None
        may_fit = found is None or found.size is None or found.size < error.limit
        if may_fit and (len(requests) > 1 or next(iter(requests.values())).max_bytes > 1):
            logger.info("broker %d: %s. Fetching one partition at a time", node, str(error))
            self._planner.fetch_alone(node, requests if found is None else [found.topic_partition])
            return False
        if found is None:
            found = OversizedBatch(next(iter(requests)))
        tp = found.topic_partition
        self._counters.partition_errors += 1
        self._candidates.touch([tp])
        return self.buffer.append(OversizedFetch(requests[tp], found, error.limit))

    def _note_node_failure(self, connection: FetchConnection, error: KafkaError) -> bool:
        """Note a failed fetch, and return True if there is an error to raise."""
        node, requests = connection.node, connection.session.requests.values()
        self._counters.fetch_errors += 1
        self._cluster.request_refresh()
        now = self._clock()
        self._planner.connections(node).not_before = self._node_retries.failed(node, now)
        for request in requests:
            self._replicas.leave_follower(request.topic_partition, node, now)
            self.buffer.note_error(request.topic_partition, request.epoch, error)
        self._candidates.touch(connection.session.requests)
        if error.retriable:
            text = f"fetching from broker {node} failed: {error}; trying again"
            self._repeats.log(node, logging.INFO, text)
            return False
        logger.warning("fetching from broker %d failed: %s", node, str(error))
        self.buffer.report(error)
        return True
