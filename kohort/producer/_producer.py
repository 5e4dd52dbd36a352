"""RecordProducer: records to a cluster, each exactly once as far as the log can show it.

Theory of operation. ``post()`` puts a record into the queue of its partition. A partition with
queued records has one task, which ends with the queue. The task makes a batch of the records that
wait, of at most ``BATCH_BYTES``. The batch gets the producer id and the next sequence numbers.
It sends the batch to the leader with acks=all until a broker acknowledges it, refuses it for good,
or its deadline passes. Nothing waits for more records: those that come meanwhile are the next
batch. InitProducerId is sent for the first batch, and again when the id is of no use any longer.

Invariants:

1. A partition has one batch in flight, so its records keep their order.
2. A batch keeps its bytes for all attempts under one id. A broker that has appended it already
   finds the sequence numbers in its state, and responds as if it appended it now.
3. Sequence numbers advance with an acknowledged batch only. A batch that was refused leaves its
   numbers to the next one.
4. A batch whose outcome is unknown may take its numbers later. If it is given up, the id ends
   with it. Otherwise a broker could take the next batch for it, and drop records.
5. A broker that has lost or fenced the state of the id gets the batch again under a new id. If an
   earlier attempt has an unknown outcome, its records may then be in the log twice. None is lost.
6. An id begins with sequence 0 in each partition.
7. Posted.wait() ends: with a delivery, an error, or ConsumerClosedError when the tasks end.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

import anyio

from kohort.errors import (
    ClusterAuthorizationFailedError,
    ConsumerClosedError,
    ErrorCode,
    InvalidReplicationFactorError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    broker_error,
    error_name,
)
from kohort.logs import PlacedText, error_text, get_logger
from kohort.producer._reactions import Reaction, may_be_appended, reaction_to
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import (
    CreateTopicsRequest,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
)
from kohort.records import HEADER_SIZE, Headers, NewRecord, encode_batch, key_partition
from kohort.transport import (
    Backoff,
    BrokerAddress,
    ClusterClient,
    Leader,
    OneShot,
    escaped,
    in_seconds,
    start_soon,
    with_principal,
)
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = get_logger("kohort.producer")

PURPOSE: Final = "produce"
BATCH_BYTES: Final = 900_000
"""Bytes after which a batch ends. The default limit of topics is 1,048,588."""
MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024 - 64 * 1024
"""Largest record. Brokers close the connection after 100 MiB, their socket.request.max.bytes."""
LAST_VERSION_WITH_NAMES: Final = 12
"""Version of Produce for a topic without an id."""
LOOKS: Final = 5
"""Number of responses that must report a topic as unknown. Brokers learn of it one by one."""
RESTART_SECONDS: Final = 30.0
"""Time in which the brokers of a cluster that restarts are known again."""
CREATE_WITH_DEFAULTS: Final = 4
"""First version of CreateTopics with the brokers' numbers of partitions and replicas."""
_RECORD_OVERHEAD: Final = 36
_HEADER_OVERHEAD: Final = 10
_SEQUENCES: Final = 1 << 31
_NO_TRANSACTION_TIMEOUT: Final = (1 << 31) - 1
_UNKNOWN_OFFSET: Final = -1


class Delivery(NamedTuple):
    """The place of an acknowledged record. The offset is -1 if the broker did not return it."""

    topic: str
    partition: int
    offset: int


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Posted:
    """A record on its way."""

    __slots__ = ("_done", "_queue", "deadline", "delivery", "error", "posted", "record", "size")

    def __init__(self, record: NewRecord, size: int, timeout: float, queue: deque[Posted]) -> None:
        self.record: NewRecord = record
        self.size: int = size
        self.posted: float = anyio.current_time()
        self.deadline: float = self.posted + timeout
        self.delivery: Delivery | None = None
        self.error: KafkaError | None = None
        self._queue = queue
        self._done = OneShot()

    async def wait(self) -> Delivery:
        """Return the place of the record. A cancelled wait withdraws a record that is not sent."""
        try:
            await self._done.wait()
        finally:
            if not self._done.is_set and self in self._queue:
                self._queue.remove(self)
        if self.error is not None:
            raise self.error
        assert self.delivery is not None
        return self.delivery

    def end(self, delivery: Delivery | None, error: KafkaError | None = None) -> None:
        """Set the result, and wake the waiting task."""
        self.delivery, self.error = delivery, error
        self._done.set()


class _Lane:
    """The queue of one partition, and the sequence numbers of the id that it uses."""

    __slots__ = ("identity", "is_running", "queue", "sequence")

    def __init__(self) -> None:
        self.queue: deque[Posted] = deque()
        self.is_running = False
        self.identity: Identity | None = None
        self.sequence = 0


class RecordProducer:
    """A producer over a cluster client. All methods belong to one event loop."""

    def __init__(
        self,
        cluster: ClusterClient,
        tasks: TaskGroup,
        *,
        rng: random.Random,
        backoff: Backoff,
        request_timeout_ms: int,
        wall_clock: Callable[[], float],
    ) -> None:
        """Create a producer whose tasks run in ``tasks``."""
        self._cluster = cluster
        self._tasks = tasks
        self._rng = rng
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._wall_clock = wall_clock
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._identity: Identity | None = None
        self._identifying = anyio.Lock()
        self._round = count(rng.randrange(1 << 16))

    # -- records ------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        fields: NewRecord | tuple[int, bytes | None, bytes | None, Headers],
        *,
        timeout: float,
        partition: int | None = None,
        like: int | None = None,
    ) -> Delivery:
        """Send a record, and wait until a broker has acknowledged it.

        Without ``partition`` the key decides, as with Kafka's producer. ``like`` is the partition
        of another topic: the same number is used, modulo the number of partitions.

        Raises RecordTooLargeError, KafkaTimeoutError after ``timeout`` seconds, and errors of
        brokers that do not pass.
        """
        record, deadline = NewRecord(*fields), anyio.current_time() + timeout
        if partition is None:
            partitions = await self.partition_count(topic, timeout)
            if like is None:
                partition = self.partition_of(record.key, partitions)
            else:
                partition = like % partitions
        left = max(0.0, deadline - anyio.current_time())
        return await self.post(topic, partition, record, timeout=left).wait()

    def post(self, topic: str, partition: int, record: NewRecord, *, timeout: float) -> Posted:
        """Queue a record. Records of a partition are appended in the order of these calls.

        A negative timestamp stands for the present time.
        """
        size = _size(record)
        if size + HEADER_SIZE > MAX_REQUEST_BYTES:
            raise RecordTooLargeError(
                f"a record for {escaped(topic)}-{partition} has about {size:,} bytes, and brokers "
                f"accept requests of at most {MAX_REQUEST_BYTES:,}. Send a smaller record"
            )
        if record.timestamp < 0:
            record = record._replace(timestamp=int(self._wall_clock() * 1000))
        tp = TopicPartition(topic, partition)
        lane = self._lanes.setdefault(tp, _Lane())
        posted = Posted(record, size, timeout, lane.queue)
        lane.queue.append(posted)
        if not lane.is_running:
            lane.is_running = True
            start_soon(self._tasks, self._run, tp, lane)
        return posted

    def partition_of(self, key: bytes | None, partitions: int) -> int:
        """Return Kafka's partition for a key. Records without a key take turns."""
        return next(self._round) % partitions if key is None else key_partition(key, partitions)

    async def partition_count(self, topic: str, timeout: float) -> int:
        """Return the number of partitions of a topic.

        Wait for a topic that does not exist, because metadata may be late. Raises as send() does.
        """
        failures = 0
        error: KafkaError = broker_error(ErrorCode.LEADER_NOT_AVAILABLE)
        with anyio.move_on_after(timeout):
            metadata = self._cluster.metadata
            while not (partitions := metadata.partitions_for(topic)):
                try:
                    metadata = await self._cluster.fetch_topics({topic}, may_create=False)
                    known = metadata.topics.get(topic)
                    if known is None or known.error or not known.partitions:
                        code = known.error if known and known.error else 0
                        raise broker_error(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                except KafkaError as raised:
                    error = raised
                    if reaction_to(error) is Reaction.FAIL:
                        raise self._described(error, escaped(topic), topic) from error
                    failures += 1
                    await anyio.sleep(self._backoff.delay(failures, self._rng))
            return len(partitions)
        raise _timed_out(escaped(topic), timeout, error) from error

    async def require_topic(self, topic: str, *, create: bool) -> None:
        """Wait until the brokers know a topic, and create it with their defaults if asked to.

        Raises UnknownTopicOrPartitionError if it does not exist, and errors that do not pass.
        """
        failures, is_unknown = 0, False
        patient_until = anyio.current_time() + RESTART_SECONDS
        while True:
            try:
                if is_unknown and create:
                    await self._create_topic(topic)
                metadata = await self._cluster.fetch_topics({topic}, may_create=False)
                known = metadata.topics.get(topic)
                if known is not None and not known.error:
                    return
                raise broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
                )
            except KafkaError as error:
                failures += 1
                is_unknown = isinstance(error, UnknownTopicOrPartitionError)
                is_missing = is_unknown and not create and failures > LOOKS
                # A controller that has just started knows no broker to put the topic on.
                is_early = (
                    isinstance(error, InvalidReplicationFactorError)
                    and anyio.current_time() < patient_until
                )
                is_unknown |= is_early
                if is_missing or (reaction_to(error) is Reaction.FAIL and not is_early):
                    raise self._described(error, escaped(topic), topic) from error
                await anyio.sleep(self._backoff.delay(failures, self._rng))

    async def _create_topic(self, topic: str) -> None:
        controller = self._cluster.metadata.controller
        response = await self._cluster.request(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=topic, num_partitions=-1, replication_factor=-1
                    )
                ],
                timeout_ms=self._request_timeout_ms,
            ),
            node=controller if controller in self._cluster.metadata.brokers else None,
            purpose=PURPOSE,
            timeout_ms=self._request_timeout_ms,
            min_version=CREATE_WITH_DEFAULTS,
        )
        for each in response.topics:
            if each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise TopicAuthorizationFailedError(topics={topic}, operation="CREATE")
            if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise broker_error(each.error_code, each.error_message or "")

    def _described(self, error: KafkaError, place: str, topic: str) -> KafkaError:
        """Return the error of a refused record, with its place and the advice."""
        text = f"producing to {place} failed"
        if isinstance(error, TopicAuthorizationFailedError):
            operation = error.operation or "WRITE"
            denied = TopicAuthorizationFailedError(
                f"{text} with {error_name(error.code)}: this client needs {operation} on topic "
                f"{topic!r}. Grant it",
                topics={topic},
                operation=operation,
            )
            return with_principal(denied, self._cluster.principal)
        if isinstance(error, ClusterAuthorizationFailedError):
            refused = ClusterAuthorizationFailedError(
                f"{text} with {error_name(error.code)}: this client needs WRITE on topic "
                f"{topic!r}. Brokers before Kafka 2.8 require IDEMPOTENT_WRITE on the cluster as "
                "well"
            )
            return with_principal(refused, self._cluster.principal)
        code = getattr(error, "code", None)
        return error if code is None else broker_error(code, f"{text}: {error}".removesuffix("."))

    # -- the task of a partition --------------------------------------------------------------

    async def _run(self, tp: TopicPartition, lane: _Lane) -> None:
        """Deliver batches while there are queued records."""
        batch: list[Posted] = []
        try:
            while lane.queue:
                batch = _cut(lane.queue)
                await self._deliver(tp, lane, batch)
                batch = []
        finally:
            lane.is_running = False
            for posted in (*batch, *lane.queue):  # the tasks were cancelled
                if posted.delivery is None and posted.error is None:
                    posted.end(None, ConsumerClosedError("the client is closed"))
            lane.queue.clear()

    async def _deliver(self, tp: TopicPartition, lane: _Lane, batch: list[Posted]) -> None:
        """Send a batch until it is acknowledged, refused for good, or late. Set its results."""
        name = f"{escaped(tp.topic)}-{tp.partition}"
        place = PlacedText(name, topic=tp.topic, partition=tp.partition)
        first = min(batch, key=lambda posted: posted.deadline)
        deadline = first.deadline
        attempts = _Attempts()
        error: KafkaError = KafkaTimeoutError("no broker responded")
        final: KafkaError | None = None
        with anyio.CancelScope(deadline=deadline):
            while True:
                try:
                    if attempts.identity is None:
                        attempts.identity = await self._identify()
                        attempts.data = self._encode(lane, attempts.identity, batch)
                    offset = await self._send(tp, attempts)
                except KafkaError as raised:
                    error = raised
                else:
                    lane.sequence = (lane.sequence + len(batch)) % _SEQUENCES
                    _acknowledge(tp, batch, offset)
                    return
                reaction = reaction_to(error)
                if reaction is Reaction.SPLIT and len(batch) > 1:
                    break
                if reaction in (Reaction.FAIL, Reaction.SPLIT):
                    final = self._described(error, place, tp.topic)
                    break
                if reaction is Reaction.NEW_ID:
                    logger.info(
                        "%s: %s. The next attempt uses a new producer id", place, error_text(error)
                    )
                    self._end_identity(attempts.identity)
                    attempts.identity, attempts.may_be_appended = None, False
                else:
                    logger.debug("%s: a batch is sent again: %s", place, error_text(error))
                attempts.note_failure(error)
                if attempts.pauses:
                    await anyio.sleep(self._backoff.delay(attempts.failures, self._rng))
        if attempts.may_be_appended:
            self._end_identity(attempts.identity)  # invariant 4
        if final is None and reaction_to(error) is Reaction.SPLIT:
            half = len(batch) // 2
            await self._deliver(tp, lane, batch[:half])
            await self._deliver(tp, lane, batch[half:])
            return
        if final is None:
            final = _timed_out(place, deadline - first.posted, error)
        for posted in batch:
            posted.end(None, final)

    def _encode(self, lane: _Lane, identity: Identity, batch: Sequence[Posted]) -> bytes:
        """Return the bytes of a batch, with the next sequence numbers of the id."""
        if lane.identity != identity:
            lane.identity, lane.sequence = identity, 0
        return encode_batch(
            [posted.record for posted in batch],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=lane.sequence,
        )

    # -- requests -----------------------------------------------------------------------------

    async def _identify(self) -> Identity:
        """Return the producer id, which is requested if there is none."""
        if self._identity is not None:
            return self._identity
        async with self._identifying:
            if self._identity is None:
                response = await self._cluster.request(
                    InitProducerIdRequest(
                        transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT
                    ),
                    purpose=PURPOSE,
                    timeout_ms=self._request_timeout_ms,
                )
                if response.error_code:
                    raise broker_error(response.error_code)
                self._identity = Identity(response.producer_id, response.producer_epoch)
            return self._identity

    def _end_identity(self, identity: Identity | None) -> None:
        """Let later batches use a new producer id, unless that has begun already."""
        if identity is not None and self._identity == identity:
            self._identity = None

    async def _send(self, tp: TopicPartition, attempts: _Attempts) -> int:
        """Send a batch to the leader once, and return the offset of its first record."""
        leader, topic_id = await self._leader(tp, refresh=attempts.refreshes_metadata)
        has_id = topic_id != ZERO_UUID
        before, attempts.may_be_appended = attempts.may_be_appended, True
        response = await self._cluster.request(
            ProduceRequest(
                acks=-1,
                timeout_ms=self._request_timeout_ms,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name=tp.topic,
                        topic_id=topic_id,
                        partition_data=[
                            ProduceRequest.PartitionProduceData(
                                index=tp.partition, records=attempts.data
                            )
                        ],
                    )
                ],
            ),
            node=leader.node,
            purpose=PURPOSE,
            timeout_ms=self._request_timeout_ms,
            max_version=None if has_id else LAST_VERSION_WITH_NAMES,
        )
        result = _result(response, tp)
        if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return result.base_offset if not result.error_code else _UNKNOWN_OFFSET
        error = broker_error(result.error_code, result.error_message or "")
        attempts.may_be_appended = before or may_be_appended(error)
        attempts.has_new_leader = self._learn(tp, response, result)
        raise error

    async def _leader(self, tp: TopicPartition, *, refresh: bool) -> tuple[Leader, bytes]:
        """Return the leader of a partition and the id of its topic."""
        metadata = self._cluster.metadata
        leader = None if refresh else metadata.leader(tp)
        if leader is None:
            metadata = await self._cluster.fetch_topics({tp.topic}, may_create=False)
            leader = metadata.leader(tp)
        topic = metadata.topics.get(tp.topic)
        if leader is None or topic is None:
            code: int = ErrorCode.LEADER_NOT_AVAILABLE
            if topic is None or (not topic.error and tp.partition not in topic.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.error:
                code = topic.error
            raise broker_error(code)
        return leader, topic.topic_id

    def _learn(
        self,
        tp: TopicPartition,
        response: ProduceResponse,
        result: ProduceResponse.PartitionProduceResponse,
    ) -> bool:
        """Note the leader that a broker names with an error (KIP-951). True if it is newer."""
        named = result.current_leader
        if named.leader_id < 0:
            return False
        before = self._cluster.metadata
        self._cluster.learn_leaders(
            {tp: Leader(named.leader_id, named.leader_epoch)},
            map(BrokerAddress.of, response.node_endpoints),
        )
        return self._cluster.metadata is not before


class _Attempts:
    """The attempts to deliver one batch. The bytes stay the same under one producer id."""

    __slots__ = (
        "data",
        "failures",
        "has_new_leader",
        "identity",
        "may_be_appended",
        "pauses",
        "refreshes_metadata",
    )

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.data = b""
        self.failures = 0
        self.may_be_appended = False
        """True if an attempt under this id has an unknown outcome."""
        self.has_new_leader = False
        """True if the latest response named a newer leader."""
        self.refreshes_metadata = False
        self.pauses = True

    def note_failure(self, error: KafkaError) -> None:
        """Decide on the metadata and the pause of the next attempt.

        A leader that a broker has named needs neither.
        """
        self.failures += 1
        self.pauses = not self.has_new_leader
        # The leader may be unreachable, so errors of the network refresh the metadata, too.
        self.refreshes_metadata = self.pauses and getattr(error, "refresh_metadata", True)
        self.has_new_leader = False


def _cut(queue: deque[Posted]) -> list[Posted]:
    """Remove and return the records of the next batch."""
    batch = [queue.popleft()]
    size = batch[0].size
    while queue and size + queue[0].size <= BATCH_BYTES:
        size += queue[0].size
        batch.append(queue.popleft())
    return batch


def _size(record: NewRecord) -> int:
    """Return an upper limit of the bytes of a record."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(content or b"")
    return size


def _acknowledge(tp: TopicPartition, batch: Sequence[Posted], offset: int) -> None:
    for at, posted in enumerate(batch):
        posted.end(Delivery(*tp, _UNKNOWN_OFFSET if offset < 0 else offset + at))


def _result(
    response: ProduceResponse, tp: TopicPartition
) -> ProduceResponse.PartitionProduceResponse:
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.index == tp.partition:
                return result
    raise ProtocolError(
        f"a response to Produce has no result of {escaped(tp.topic)}-{tp.partition}"
    )


def _timed_out(place: str, seconds: float, error: KafkaError) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"producing to {place} failed: no broker acknowledged the record within "
        f"{in_seconds(seconds)}. The latest error was {type(error).__name__}: {error}"
    )
