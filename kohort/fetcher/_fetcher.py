"""The fetcher: keeps the buffer filled from all brokers, ahead of the caller."""

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
from kohort.fetcher._cluster_view import Cluster, Leased
from kohort.fetcher._completed import DecodeOptions
from kohort.fetcher._connections import FetchConnection
from kohort.fetcher._counters import FetchCounters
from kohort.fetcher._deserialize import record_deserializer
from kohort.fetcher._failure_reports import REFUSED_BACKOFF_MS, Refusals
from kohort.fetcher._leaders import Leaders
from kohort.fetcher._lease import SharedLease
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._offsets import OffsetLookup
from kohort.fetcher._oversized import Found, OversizedFetch, find_batch
from kohort.fetcher._planning import Fetch, Planner
from kohort.fetcher._received_response import ReceivedResponse
from kohort.fetcher._recreated import RecreatedTopics
from kohort.fetcher._replicas import Replicas
from kohort.fetcher._request import fetch_request, partitions_of, read_answers
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

    _Response = Leased[FetchResponse]
    _Lease = SharedLease | None

logger = logging.getLogger("kohort.fetcher")

SMALL_ANSWER = 16 << 10
"""Bytes of batches that the caller decodes in no time. Larger ones wait for the next fetch."""


def _nothing() -> None:
    pass


class Fetcher:
    """Loop that fetches every fetchable partition until its share of the buffer is full.

    :meth:`run` does the work. :meth:`wake` starts the next look in its event loop and follows every
    change of the subscription or the metadata. ``on_ready`` is called when there is something to
    drain. ``notify_waiting_caller`` comes before it, in the callback that received a small
    response, and returns True if it notified the caller. :meth:`FetchBuffer.drain` calls
    ``on_room`` on its own thread when the fetcher waits for room. While ``may_deliver`` is False,
    drains return nothing. ``wall_clock`` gives seconds since 1970.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        *,
        wall_clock: Callable[[], float],
        on_ready: Callable[[], None] = _nothing,
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
        self.buffer = FetchBuffer(
            subscription,
            max_bytes=self._sizes.read_ahead,
            on_room=on_room or weak_callback(self.wake),
            may_deliver=may_deliver,
            on_error=config.on_error,
            memory=FetchMemory(config.buffer_memory),
            laggiest_first=config.fetch_order == "lag",
        )
        self.offsets = OffsetLookup(cluster, config, rng=rng)
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        slow = Backoff.from_ms(REFUSED_BACKOFF_MS, metadata_max_age_ms)
        refusals = Refusals(self.buffer, config.on_error, cluster)
        self._retries: Retries[TopicPartition] = Retries(backoff, rng, slow)
        self._leaders = Leaders(cluster, backoff, rng)
        self._node_retries: Retries[int] = Retries(backoff, rng)
        self._repeats = RepeatedLog(logger)
        self._replicas = Replicas(metadata_max_age_ms / 1000)
        self._validation = Validation(
            cluster,
            subscription,
            self.buffer,
            Retries(backoff, rng, slow),
            refusals,
            on_done=weak_callback(self._validated),
            on_ready=on_ready,
        )
        self._resets = PositionResets(
            self._leaders,
            subscription,
            self.offsets,
            self.buffer,
            Retries(backoff, rng, slow),
            refusals,
            on_found=weak_callback(self.wake),
            on_position=self._validation.good,
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
            refusals,
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
        self._planner = Planner(
            self._candidates, self.buffer, config, self._sizes, self._intake.arrival_of
        )
        self._owned: Collection[TopicPartition] = ()
        self._clock: Callable[[], float] = anyio.current_time
        self._wakeup = anyio.Event()
        self._waiting: anyio.CancelScope | None = None  # made in the event loop
        self._following: FetchConnection | None = None  # whose task looks for what to do next
        self._follows: Fetch | None = None  # what it has found for itself

    async def run(self) -> None:
        """Fetch until cancelled; never raises otherwise."""
        self._clock = running_clock()
        async with anyio.create_task_group() as tasks:
            while True:
                self._wakeup = anyio.Event()
                self._waiting = anyio.CancelScope(deadline=self._look(tasks))
                with self._waiting:
                    await self._wakeup.wait()

    def wake(self) -> None:
        """Look again at what can be fetched. Called in the event loop of :meth:`run`."""
        self._wakeup.set()

    def _validated(self, partitions: Iterable[TopicPartition]) -> None:
        self._candidates.touch(partitions)
        self.wake()

    def close(self) -> None:
        """Drop what is buffered."""
        self.buffer.close()

    async def end_sessions(self, timeout: float) -> None:
        """Tell the brokers that nothing more is fetched, so that they need not remember what was.

        In seconds; never raises. Sent beside the lanes, which may be parked.
        """
        plans = [
            (lane.node, plan)
            for lane in self._planner.all_lanes()
            if (plan := lane.session.end()) is not None
            and self._node_retries.not_before(lane.node) == 0.0
        ]

        await end_sessions(self._cluster, self._config, plans, timeout)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See :meth:`OffsetLookup.list_offsets`."""
        return await self.offsets.list_offsets(timestamps, timeout=timeout)

    def reset_timestamp(self, strategy: OffsetReset) -> int:
        """What to look up for a rule that is not "none": EARLIEST, LATEST, or a time in ms."""
        return reset_timestamp(strategy, self._wall_clock())

    def in_flight(self) -> dict[TopicPartition, tuple[int, float]]:
        """The partitions that a fetch is under way for: at which broker, and since when.

        May be called from any thread.
        """
        return self._planner.in_flight()

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Time of the latest response to a fetch of the partition, by the loop's clock; or None.

        May be called from any thread.
        """
        with self._subscription.lock:
            state = self._subscription.partition(tp)
        if state is None or state.fetched_at is None:
            return None
        lane = self._planner.lane_of(tp)
        quiet_at = None if lane is None else lane.session.fetched_at(tp)
        return max(state.fetched_at, quiet_at or state.fetched_at)

    def follower(self, tp: TopicPartition) -> int | None:
        """The follower that the partition is read from (KIP-392); None: its leader."""
        return self._replicas.of(tp)

    def metrics(self) -> dict[str, float]:
        """Figures since the start, by the Java client's names where it has them."""
        return self._counters.as_metrics(self.buffer)

    def _forget(self, owned: frozenset[TopicPartition]) -> None:
        """Drop what is remembered of partitions that are not owned any more."""
        self._owned = owned
        self._sizes.partitions = len(owned)
        self._retries.keep_only(owned)
        self._leaders.keep_only(owned)
        self._replicas.keep_only(owned)
        self._validation.keep_only(owned)
        self._intake.keep_only(owned)
        self._planner.keep_only(owned)

    def _size_of(self, tp: TopicPartition, node: int) -> int:
        return max(self._intake.sizes.get(tp, 0), self._sizes.of_partition(node))

    # --- asking ---------------------------------------------------------------------------------

    def _look(self, tasks: TaskGroup) -> float:
        """Start whatever can be started; returns when to look again."""
        now = self._clock()
        owned = self._subscription.assigned()
        if owned is not self._owned:
            self._forget(owned)
        try:
            self._recreated.look()
            candidates = self._candidates
            look_again = candidates.refresh(now)
            if resets := candidates.resets.values():
                look_again = min(look_again, self._resets.start(tasks, resets, now))
            if checks := candidates.unvalidated:
                look_again = min(look_again, self._validation.start(tasks, checks, now))
            return min(look_again, self._start_fetches(tasks, now))
        except Exception:
            # A bug, but a consumer that stops reading without a word would be a worse one.
            logger.exception("the fetcher failed; it goes on")
            return now + self._config.retry_backoff_max_ms / 1000

    def _start_fetches(self, tasks: TaskGroup, now: float) -> float:
        fetches, look_again = self._planner.due(now)
        for fetch in fetches:
            if fetch.lane is self._following:
                self._follows = fetch
            else:
                start_soon(tasks, self._fetch, tasks, fetch)
        return look_again

    async def _fetch(self, tasks: TaskGroup, first: Fetch) -> None:
        """Fetch over a lane, as long as one follows the other at once."""
        fetch: Fetch | None = first
        while fetch is not None:
            if await self._fetch_once(fetch):
                # A thread that waits takes a while to wake up. It has the interpreter's lock only
                # when the next fetch is sent, so that is on its way before much is decoded.
                self._on_ready()
            # It is sent by this task, if it is for this lane: a new one would begin a turn later.
            self._following, self._follows = fetch.lane, None
            look_again = self._look(tasks)
            self._following, fetch = None, self._follows
            if self._waiting is not None:
                self._waiting.deadline = look_again

    async def _fetch_once(self, fetch: Fetch) -> bool:
        """Send, wait, and put what came into the buffer.

        Returns True if the caller is to be notified.
        """
        lane, plan, max_wait, granted = fetch
        max_wait_ms = int(max_wait * 1000)
        receipt, ready = ReceivedResponse(), False
        stays = self._replicas.any_stays(lane.session.asks)
        try:
            leased = await self._cluster.request_leased(
                fetch_request(
                    self._config,
                    plan,
                    max_wait_ms,
                    granted.max_bytes,
                    rack="" if stays else self._rack,
                ),
                node=lane.node,
                purpose=lane.purpose,
                timeout_ms=self._config.request_timeout_ms + max_wait_ms,
                max_version=plan.max_version,
                on_response=partial(self._receive, fetch, receipt),
            )
            if receipt.error is not None:
                raise receipt.error
            if not receipt.begun:
                self._take(lane, receipt, leased)
            ready = self._note(lane, receipt)
        except OversizedFrameError as error:
            lane.session.failed()
            ready = self._too_large(lane, error)
        except KafkaError as error:
            lane.session.failed()
            ready = self._node_failed(lane, error)
        except Exception as error:
            lane.session.failed()
            logger.exception("fetching from broker %d failed", lane.node)
            failure = KafkaError(f"fetching failed: {error!r}")
            ready = self._node_failed(lane, failure)
        finally:
            lane.finish()
            self.buffer.memory.answered(granted)
        return ready and not receipt.is_caller_notified

    # --- taking what came -----------------------------------------------------------------------

    def _receive(self, fetch: Fetch, receipt: ReceivedResponse, leased: _Response) -> None:
        """Take a response without errors in the callback that received it; never raises.

        A caller that waits has its records a turn of the event loop earlier. The task of the fetch
        takes other responses.
        """
        try:
            receipt.receive(leased, fetch.granted.max_bytes)
            if receipt.has_no_errors:
                self._take(fetch.lane, receipt, leased)
            if receipt.is_ready and receipt.size <= SMALL_ANSWER:
                receipt.is_caller_notified = self._notify_waiting_caller()
        except Exception as error:
            receipt.error = error

    def _take(self, lane: FetchConnection, receipt: ReceivedResponse, leased: _Response) -> None:
        """Put the records into the buffer."""
        receipt.begun = True
        receipt.now = self._clock()
        response = leased.response
        memory = self.buffer.memory
        lease = SharedLease(memory.hold(leased, receipt.size)) if leased.is_pooled else None
        try:
            if not response.error_code:
                self._take_partitions(lane, receipt, response, lease)
            receipt.taken = True
        finally:
            if lease is not None:
                lease.release()

    def _take_partitions(
        self,
        lane: FetchConnection,
        receipt: ReceivedResponse,
        response: FetchResponse,
        lease: _Lease,
    ) -> None:
        session, now, had_room = lane.session, receipt.now, receipt.had_room
        there = receipt.there = partitions_of(response, session.asks, session.names)
        if not receipt.has_no_errors:
            self._leaders.learn(response, there)
        asks = {tp: session.asks[tp] for tp in there if self._planner.lane_of(tp) is lane}
        receipt.answers = read_answers(
            there, asks, options=self._options, lease=lease, largest=self._largest
        )
        for tp, answer in receipt.answers.items():
            if self._intake.take(lane.node, asks[tp], answer, now, had_room=had_room):
                receipt.is_ready = True

    def _note(self, lane: FetchConnection, receipt: ReceivedResponse) -> bool:
        """Note the rest of a response. Returns True if there is something new to drain."""
        session, now, response = lane.session, receipt.now, receipt.response
        if response is None or not receipt.taken:
            session.failed()  # Ctrl-C came in the callback
            return True
        self._counters.answered(now - lane.sent_at)
        self._sizes.note_response(lane.node, receipt.largest, receipt.size, now - lane.sent_at)
        self.buffer.read_ahead = self._sizes.read_ahead
        if response.error_code:
            again = session.incremental and response.error_code in SESSION_ERRORS
            session.failed(response.error_code)
            error = broker_error(response.error_code)
            if again:
                logger.debug(
                    "broker %d: %s; a full fetch begins another one", lane.node, str(error)
                )
                return False
            return self._node_failed(lane, error)
        self._node_retries.succeeded(lane.node)
        self._repeats.ended(lane.node)
        self._intake.log_failures()
        self._candidates.touch(receipt.there)
        quiet = session.answered(response.session_id, receipt.there, now)
        settled = session.settle(quiet, receipt.there, had_room=receipt.had_room)
        if settled:
            notes = [
                (tp, session.asks[tp].epoch, told)
                for tp, told in settled.items()
                if self._planner.lane_of(tp) is lane
            ]
            self._intake.note_up_to_date(notes, now, had_room=receipt.had_room)
        pause = response.throttle_time_ms / 1000
        self._counters.throttle_max = max(self._counters.throttle_max, pause)
        if now < lane.until and receipt.is_empty():
            # Nothing, and before its time: such a broker must not be asked in a tight loop. (What
            # is tried again has a back-off of its own, and need not hold up the others.)
            pause = max(pause, min(self._config.retry_backoff_ms / 1000, lane.until - now))
        lanes = self._planner.lanes(lane.node)
        if receipt.is_ready:
            lanes.came()
        lanes.not_before = max(lanes.not_before, now + pause if pause > 0 else 0.0)
        return receipt.is_ready

    def _too_large(self, lane: FetchConnection, error: OversizedFrameError) -> bool:
        """Find the batch that made a response too large; True if there is an error to raise.

        A partition that may fit alone, or that the response does not name, is fetched alone.
        """
        self._counters.fetch_errors += 1
        lanes, asks = self._planner.lanes(lane.node), lane.session.asks
        lanes.not_before = self._clock() + self._config.retry_backoff_ms / 1000
        found = find_batch(error.head, error.version, lane.session.names)
        if found is not None and found.topic_partition not in asks:
            found = None
        may_fit = found is None or found.size is None or found.size < error.limit
        if may_fit and (len(asks) > 1 or next(iter(asks.values())).max_bytes > 1):
            logger.info("broker %d: %s; fetching one partition at a time", lane.node, str(error))
            self._planner.fetch_alone(lane.node, asks if found is None else [found.topic_partition])
            return False
        if found is None:
            found = Found(next(iter(asks)))
        tp = found.topic_partition
        self._counters.partition_errors += 1
        self._candidates.touch([tp])
        return self.buffer.append(OversizedFetch(asks[tp], found, error.limit))

    def _node_failed(self, lane: FetchConnection, error: KafkaError) -> bool:
        """Returns True if the caller is to be told: it is not just a connection that broke."""
        node, asks = lane.node, lane.session.asks.values()
        self._counters.fetch_errors += 1
        self._cluster.request_refresh()
        now = self._clock()
        self._planner.lanes(node).not_before = self._node_retries.failed(node, now)
        for ask in asks:
            self._replicas.leave(ask.topic_partition, node, now)
            self.buffer.note_error(ask.topic_partition, ask.epoch, error)
        self._candidates.touch(lane.session.asks)
        if error.retriable:
            text = f"fetching from broker {node} failed: {error}; trying again"
            self._repeats.log(node, logging.INFO, text)
            return False
        logger.warning("fetching from broker %d failed: %s", node, str(error))
        self.buffer.report(error)
        return True
