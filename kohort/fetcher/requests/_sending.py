"""Fetch requests on their way: sent, received, and their responses put into the buffer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

import anyio

from kohort.errors import KafkaError, broker_error
from kohort.fetcher._environment import FetchCluster, FetcherOptions
from kohort.fetcher._errors import Failure, FailureAction
from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher.buffer._buffer import FetchBuffer
from kohort.fetcher.buffer._completed import CompletedFetch, DecodeOptions, OversizedBatch
from kohort.fetcher.buffer._memory import SharedLease
from kohort.fetcher.buffer._oversized import find_batch, oversized_fetch
from kohort.fetcher.requests._candidates import Candidates
from kohort.fetcher.requests._connections import LONG_POLL_AFTER, FetchConnection
from kohort.fetcher.requests._pacing import FetchPace
from kohort.fetcher.requests._parallel import Delivery
from kohort.fetcher.requests._planning import UNKNOWN_LINE, FetchPlanner, PlannedFetch
from kohort.fetcher.requests._request import FetchResult, fetch_request, partitions_of, read_results
from kohort.fetcher.requests._response_intake import ResponseIntake
from kohort.fetcher.requests._sessions import SESSION_ERRORS
from kohort.logs import error_text, get_logger
from kohort.transport import Leased, OversizedFrameError, RepeatedLog, is_end_of_client
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.fetcher.buffer._deserialize import DeserializeRecord, KeptBytes
    from kohort.protocol.messages import FetchResponse

    _Response = Leased[FetchResponse]

logger = get_logger("kohort.fetcher")

SMALL_RESPONSE_BYTES = 16 << 10
"""Bytes that the caller decodes quickly. For larger responses, the next fetch is sent first."""


class ResponseState(IntEnum):
    """The steps of a response into the buffer. It never goes back."""

    NEW = 0
    """The buffer has nothing of it. The task of the fetch buffers it if the callback does not."""
    BUFFERING = 1
    """The buffer has some partitions. The state remains if Ctrl-C or an error ended this step."""
    BUFFERED = 2
    """The buffer has all of it, and nothing to drain."""
    READY = 3
    """The buffer has all of it, with new records or errors to drain."""
    NOTIFIED = 4
    """It is READY, and the callback has notified the waiting caller."""


class ReceivedResponse:
    """A response, its state and its outcome.

    The callback that receives the response buffers it. The task of the fetch notes the rest later,
    while the caller may already read the records.
    """

    __slots__ = (
        "error",
        "had_room",
        "has_no_errors",
        "is_to_end",
        "largest",
        "now",
        "partitions",
        "response",
        "results",
        "size",
        "state",
    )

    def __init__(self) -> None:
        self.state: ResponseState = ResponseState.NEW
        self.error: Exception | None = None
        """The exception that ended the callback."""
        self.response: FetchResponse | None = None
        self.has_no_errors = False
        """True if the response contains no error codes."""
        self.size = 0
        """Bytes of the batches."""
        self.largest = 0
        """Largest bytes of batches of one partition."""
        self.had_room = False
        """True if the response could have contained more."""
        self.is_to_end = True
        """True if the broker had no more records of the partitions in the response."""
        self.now = 0.0
        self.partitions: dict[TopicPartition, FetchResponse.PartitionData] = {}
        self.results: dict[TopicPartition, FetchResult] = {}

    def receive(self, pooled: Leased[FetchResponse], max_bytes: int) -> None:
        """Note the response to a fetch of ``max_bytes``."""
        response = self.response = pooled.response
        size, largest, plain = 0, 0, not response.error_code
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    size += (length := len(data.records))
                    if length > largest:
                        largest = length
                if data.error_code:
                    plain = False
        self.size, self.largest, self.has_no_errors = size, largest, plain
        self.had_room = 2 * size <= max_bytes

    def is_empty(self) -> bool:
        """True if no partition has data or other news."""
        for result in self.results.values():
            if isinstance(result, Failure):
                if (
                    result.action is not FailureAction.RAISE_UNTIL_SEEK
                ):  # a reset may follow, and the same again
                    return False
            elif not isinstance(result, CompletedFetch) or result.size:
                return False
        return True


def _deserializer(options: FetcherOptions) -> tuple[DeserializeRecord, KeptBytes] | None:
    if options.key_deserializer is None and options.value_deserializer is None:
        return None
    from kohort.fetcher.buffer._deserialize import (  # many need neither
        KeptBytes,
        record_deserializer,
    )

    kept = KeptBytes()
    made = record_deserializer(options.key_deserializer, options.value_deserializer, kept)
    assert made is not None
    return made, kept


class FetchSender:
    """Sends planned fetches, and notes what their responses say."""

    def __init__(
        self,
        cluster: FetchCluster,
        options: FetcherOptions,
        buffer: FetchBuffer,
        planner: FetchPlanner,
        candidates: Candidates,
        intake: ResponseIntake,
        leaders: Leaders,
        replicas: Replicas,
        notify_waiting_caller: Callable[[], bool],
    ) -> None:
        config = options.config
        self.clock: Callable[[], float] = anyio.current_time
        self._cluster = cluster
        self._config = config
        self._rack = options.rack or ""
        self._buffer = buffer
        self._queues = buffer.queues
        self._memory = buffer.queues.limits.memory
        self._planner = planner
        self._candidates = candidates
        self._intake = intake
        self._leaders = leaders
        self._replicas = replicas
        self._counters = intake.counters
        self._notify_waiting_caller = notify_waiting_caller
        found = _deserializer(options)
        deserialize = None if found is None else found[0]
        self._kept_bytes: KeptBytes | None = None if found is None else found[1]
        self._decode_options = DecodeOptions(
            check_crcs=config.check_crcs,
            budget=config.decompression_max_bytes,
            deserialize=deserialize,
        )
        self._largest = max(config.fetch_max_bytes, config.max_partition_fetch_bytes)
        self._repeats = RepeatedLog(logger)
        self.pace = FetchPace(config)
        """The intervals between fetches."""

    def keep_bytes(self) -> None:
        """Let records that are deserialized from now on keep the bytes of key and value."""
        if self._kept_bytes is not None:
            self._kept_bytes.turn_on()

    async def send(self, fetch: PlannedFetch) -> bool:
        """Send a fetch, wait, and put the response into the buffer.

        Returns True if the caller must be notified.
        """
        connection, plan, max_wait, granted = fetch
        max_wait_ms = int(max_wait * 1000)
        received, ready = ReceivedResponse(), False
        is_kept_on_leader = self._replicas.any_kept_on_leader(connection.session.requests)
        try:
            pooled = await self._cluster.request_leased(
                fetch_request(
                    self._config,
                    plan,
                    max_wait_ms,
                    granted.max_bytes,
                    rack="" if is_kept_on_leader else self._rack,
                ),
                node=connection.node,
                purpose=connection.purpose,
                timeout_ms=self._config.request_timeout_ms + max_wait_ms,
                max_version=plan.max_version,
                on_response=partial(self._receive, fetch, received),
            )
            if received.error is not None:
                raise received.error
            if received.state is ResponseState.NEW:
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
            self._memory.release_grant(granted)
        return ready and received.state is not ResponseState.NOTIFIED

    # --- responses ------------------------------------------------------------------------------

    def _receive(self, fetch: PlannedFetch, received: ReceivedResponse, pooled: _Response) -> None:
        """Buffer a response without errors in the callback that received it; never raises.

        A waiting caller gets its records one iteration of the event loop earlier, unless the next
        fetch waits for its pace. The task of the fetch buffers other responses.
        """
        try:
            received.receive(pooled, fetch.granted.max_bytes)
            if received.has_no_errors:
                self._buffer_response(fetch.connection, received, pooled)
            if received.state is ResponseState.READY and received.size <= SMALL_RESPONSE_BYTES:
                is_held = received.is_to_end and self.pace.holds(
                    fetch.connection, received.size, received.now
                )
                if not is_held and self._notify_waiting_caller():
                    received.state = ResponseState.NOTIFIED
        except Exception as error:
            received.error = error

    def _buffer_response(
        self, connection: FetchConnection, received: ReceivedResponse, pooled: _Response
    ) -> None:
        """Put the records into the buffer."""
        received.state = ResponseState.BUFFERING
        received.now = self.clock()
        response = pooled.response
        lease = self._memory.count(pooled, received.size) if pooled.is_pooled else None
        try:
            is_ready = not response.error_code and self._buffer_partitions(
                connection, received, response, lease
            )
            received.state = ResponseState.READY if is_ready else ResponseState.BUFFERED
        finally:
            if lease is not None:
                lease.release()

    def _buffer_partitions(
        self,
        connection: FetchConnection,
        received: ReceivedResponse,
        response: FetchResponse,
        lease: SharedLease | None,
    ) -> bool:
        """Put the result of each partition into the buffer, and return True if one is to drain."""
        session, now, had_room = connection.session, received.now, received.had_room
        partitions = partitions_of(response, session.requests, session.topic_names)
        received.partitions = partitions
        if not received.has_no_errors:
            self._leaders.learn(response, partitions)
        latest, known = self._planner.latest_connections, session.requests
        requests = {tp: known[tp] for tp in partitions if latest.get(tp) is connection}
        received.results = read_results(
            partitions, requests, options=self._decode_options, lease=lease, largest=self._largest
        )
        is_ready = False
        for tp, result in received.results.items():
            if not isinstance(result, CompletedFetch) or not self.pace.is_at_end(result):
                received.is_to_end = False
            if self._intake.add(connection.node, requests[tp], result, now, had_room=had_room):
                is_ready = True
        return is_ready

    def _note_response(self, connection: FetchConnection, received: ReceivedResponse) -> bool:
        """Note the rest of a response, and return True if there are records or errors to drain."""
        session, node = connection.session, connection.node
        now, response = received.now, received.response
        if response is None or received.state <= ResponseState.BUFFERING:
            session.restart()  # Ctrl-C was raised in the callback
            return True
        self._counters.note_response(now - connection.sent_at)
        line = self._cluster.line(node) or UNKNOWN_LINE
        self._planner.note_response(
            node,
            received.results.values(),
            Delivery(
                connection.sent_at, now, received.size, line.round_trip, line.bytes_per_second
            ),
            largest=received.largest,
        )
        if response.error_code:
            is_session_lost = session.is_incremental and response.error_code in SESSION_ERRORS
            session.restart(response.error_code)
            error = broker_error(response.error_code)
            if is_session_lost:
                logger.debug(
                    "broker %d: %s. A full fetch starts a new session", node, error_text(error)
                )
                return False
            return self._note_node_failure(connection, error)
        self._planner.note_success(node)
        self._repeats.ended(node)
        self._intake.failing.log()
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
        connections, is_empty = self._planner.connections(node), received.is_empty()
        if not is_empty or session.has_news:
            connections.note_news()
        elif now + LONG_POLL_AFTER >= connection.until:
            connections.note_idle(connection, self._planner.long_polls.longest)
        if is_empty and not response.throttle_time_ms:  # a quota empties a response (KIP-219)
            connections.note_empty(connection)
        if now < connection.until and is_empty:
            # An empty response before the end of the long poll must not cause a busy loop.
            # Partitions with errors have separate back-offs and must not delay the others.
            pause = max(pause, min(self._config.retry_backoff_ms / 1000, connection.until - now))
        is_ready = received.state >= ResponseState.READY
        if is_ready:
            connections.note_records(connection)
            if received.is_to_end and self.pace.holds(connection, received.size, now):
                self.pace.hold(connection)
            self.pace.note_work(self.clock() - now)
        connections.not_before = max(connections.not_before, now + pause if pause > 0 else 0.0)
        return is_ready

    def _note_oversized(self, connection: FetchConnection, error: OversizedFrameError) -> bool:
        """Find the batch that is too large, and return True if there is an error to raise.

        A partition that may fit alone, or that the response does not name, is fetched alone.
        """
        self._counters.fetch_errors += 1
        node, requests = connection.node, connection.session.requests
        connections = self._planner.connections(node)
        pause = self._config.retry_backoff_ms / 1000
        connections.not_before = max(connections.not_before, self.clock() + pause)
        found = find_batch(error.head, error.version, connection.session.topic_names)
        if found is not None and found.topic_partition not in requests:
            found = None
        may_fit = found is None or found.size is None or found.size < error.limit
        if may_fit and (len(requests) > 1 or next(iter(requests.values())).max_bytes > 1):
            logger.info("broker %d: %s. Fetching one partition at a time", node, error_text(error))
            self._planner.fetch_alone(node, requests if found is None else [found.topic_partition])
            return False
        if found is None:
            found = OversizedBatch(next(iter(requests)))
        tp = found.topic_partition
        self._counters.partition_errors += 1
        self._candidates.touch([tp])
        epoch, offset = requests[tp].epoch, requests[tp].offset
        return self._queues.append(oversized_fetch(found, epoch, offset, error.limit))

    def _note_node_failure(self, connection: FetchConnection, error: KafkaError) -> bool:
        """Note a failed fetch, and return True if there is an error to raise."""
        node, requests = connection.node, connection.session.requests.values()
        self._counters.fetch_errors += 1
        self._cluster.request_refresh()
        now = self.clock()
        self._planner.note_failure(connection, now)
        self._intake.note_node_failure(node, requests, error, now)
        self._candidates.touch(connection.session.requests)
        if error.retriable:
            text = f"fetching from broker {node} failed: {error}; trying again"
            self._repeats.log(node, logging.INFO, text)
            return False
        if is_end_of_client(error):
            return False
        logger.warning("fetching from broker %d failed: %s", node, error_text(error))
        self._buffer.report(error)
        return True
