"""RecordProducer on the virtual clock: order, sequences, retries, and every error that matters."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort.config import ConsumerConfig
from kohort.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    ConsumerClosedError,
    ErrorCode,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kohort.producer import NewRecord, RecordProducer, _producer
from kohort.records import key_partition, read_header
from kohort.testing import Action, Call, MemoryCluster
from kohort.transport import Backoff, ClusterClient, OneShot, start_soon
from tests.support.virtual import run_virtual_on

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])

CREATE_TIME = 1_700_000_000_000


@asynccontextmanager
async def producing(cluster: MemoryCluster) -> AsyncIterator[RecordProducer]:
    config = ConsumerConfig.from_kwargs(
        bootstrap_servers=cluster.bootstrap_servers,
        connect=cluster.connect,
        wall_clock=cluster.wall_clock,
    )
    client = ClusterClient.of(config, random.Random(1))
    async with anyio.create_task_group() as tasks:
        started = OneShot()
        start_soon(tasks, client.run, started.set)
        await started.wait()
        yield RecordProducer(
            client,
            tasks,
            rng=random.Random(2),
            backoff=Backoff(0.1, 1.0),
            request_timeout_ms=5000,
            wall_clock=cluster.wall_clock,
        )
        await client.aclose()
        tasks.cancel_scope.cancel()


def in_cluster(
    backend: str,
    main: Callable[[MemoryCluster, RecordProducer], Awaitable[None]],
    **options: Any,
) -> None:
    async def run() -> None:
        options.setdefault("topics", {"t": 1})
        async with MemoryCluster(**options) as cluster, producing(cluster) as producer:
            await main(cluster, producer)

    run_virtual_on(backend, run)


def new(value: str, key: str | None = None) -> NewRecord:
    return NewRecord(CREATE_TIME, None if key is None else key.encode(), value.encode())


def values(cluster: MemoryCluster, topic: str = "t") -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(topic)]


async def send_all(producer: RecordProducer, *names: str, timeout: float = 60.0) -> list[int]:
    """Post records to one partition at the same time, and return their offsets."""
    posted = [producer.post("t", 0, new(name), timeout=timeout) for name in names]
    return [(await each.wait()).offset for each in posted]


class Sequences:
    """The producer ids and base sequences of the batches that a broker received."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.seen: list[tuple[int, int]] = []
        cluster.on("Produce", self._note)

    def _note(self, call: Call) -> None:
        for topic in call.message.topic_data:
            for data in topic.partition_data:
                header = read_header(data.records, 0)
                self.seen.append((header.producer_id, header.base_sequence))

    @property
    def ids(self) -> int:
        return len({producer_id for producer_id, _ in self.seen})


def test_records_arrive_as_they_were_given(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        headers = (("a", b"1"), ("a", None))
        record = NewRecord(CREATE_TIME, b"key", None, headers)
        delivery = await producer.send("t", record, timeout=60)
        assert delivery == ("t", 0, 0)
        [found] = cluster.records("t")
        assert (found.key, found.value, found.headers) == (b"key", None, headers)
        assert found.timestamp == CREATE_TIME

    in_cluster(backend, main)


def test_a_record_without_a_timestamp_gets_the_present(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        before = int(cluster.wall_clock() * 1000)
        await producer.send("t", NewRecord(-1, None, b"a"), timeout=60)
        assert cluster.records("t")[0].timestamp >= before

    in_cluster(backend, main)


def test_posted_records_keep_their_order_in_few_batches(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        sequences = Sequences(cluster)
        names = [str(number) for number in range(100)]
        assert await send_all(producer, *names) == list(range(100))
        assert values(cluster) == names
        assert len(sequences.seen) < 4
        await send_all(producer, "last")
        assert sequences.seen[-1][1] == 100
        assert sequences.ids == 1

    in_cluster(backend, main)


def test_a_key_decides_as_with_kafkas_producer(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        for key in ("alice", "bob", "carol", ""):
            delivery = await producer.send("t", new("v", key), timeout=60)
            assert delivery.partition == key_partition(key.encode(), 7)
        found = {
            (await producer.send("t", NewRecord(-1, None, b"x"), timeout=60)).partition
            for _ in range(7)
        }
        assert found == set(range(7))

    in_cluster(backend, main, topics={"t": 7})


def test_the_partition_of_another_topic_wraps(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        delivery = await producer.send("t", new("v", "k"), like=10, timeout=60)
        assert delivery.partition == 1

    in_cluster(backend, main, topics={"t": 3})


RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
]


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_errors_that_pass_are_retried_with_the_same_bytes(backend: str, code: ErrorCode) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        sequences = Sequences(cluster)
        await send_all(producer, "first")
        fault = cluster.on("Produce", lambda call: call.error(code), keep=3)
        assert await send_all(producer, "a", "b") == [1, 2]
        assert fault.hits == 3
        assert values(cluster) == ["first", "a", "b"]
        assert sequences.ids == 1

    in_cluster(backend, main)


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_a_batch_that_was_appended_is_not_appended_twice(backend: str, code: ErrorCode) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        async def append_and_fail(call: Call) -> Any:
            await call.proceed()
            return call.error(code)

        await send_all(producer, "first")
        cluster.on("Produce", append_and_fail, keep=2)
        assert await send_all(producer, "a", "b") == [1, 2]
        await send_all(producer, "c")
        assert values(cluster) == ["first", "a", "b", "c"]

    in_cluster(backend, main)


@pytest.mark.parametrize("is_appended", [False, True])
def test_a_lost_response_appends_once(backend: str, is_appended: bool) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        async def lose(call: Call) -> Action:
            if is_appended:
                await call.proceed()
            return Action.DROP

        cluster.on("Produce", lose, keep=1)
        assert await send_all(producer, "a", "b") == [0, 1]
        assert values(cluster) == ["a", "b"]

    in_cluster(backend, main)


NEW_ID = [
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]


@pytest.mark.parametrize("code", NEW_ID, ids=lambda code: code.name)
def test_a_lost_or_fenced_id_is_replaced(backend: str, code: ErrorCode) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        await send_all(producer, "first")
        sequences = Sequences(cluster)
        cluster.on("Produce", lambda call: call.error(code), keep=1)
        assert await send_all(producer, "a", "b") == [1, 2]
        assert values(cluster) == ["first", "a", "b"]
        assert sequences.seen[-1][1] == 0
        assert sequences.ids == 2

    in_cluster(backend, main)


def test_another_partition_keeps_the_bytes_of_its_batch(backend: str) -> None:
    """A new id of one partition must not change a batch of another that may be appended."""

    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        appended = anyio.Event()

        async def act(call: Call) -> Any:
            [data] = call.message.topic_data[0].partition_data
            if data.index == 0:
                await call.proceed()
                appended.set()
                return Action.DROP
            await appended.wait()
            return call.error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

        cluster.on("Produce", act, keep=2)
        first = producer.post("t", 0, new("a"), timeout=60)
        second = producer.post("t", 1, new("b"), timeout=60)
        await first.wait()
        await second.wait()
        assert sorted(values(cluster)) == ["a", "b"]

    in_cluster(backend, main, topics={"t": 2}, brokers=2)


REFUSED = [
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ClusterAuthorizationFailedError),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
    (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerResponseError),
    (ErrorCode.INVALID_REQUIRED_ACKS, BrokerResponseError),
    (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, BrokerResponseError),
]


@pytest.mark.parametrize(("code", "kind"), REFUSED, ids=lambda each: getattr(each, "name", ""))
def test_errors_that_do_not_pass_are_raised(
    backend: str, code: ErrorCode, kind: type[KafkaError]
) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        cluster.on("Produce", lambda call: call.error(code), keep=1)
        with pytest.raises(kind, match="producing to t-0 failed"):
            await send_all(producer, "a")
        assert await send_all(producer, "b") == [0]
        assert values(cluster) == ["b"]

    in_cluster(backend, main)


def test_one_large_record_fails_alone(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        names = ["a", "b" * 2000, "c", "d"]
        posted = [producer.post("t", 0, new(name), timeout=60) for name in names]
        results: list[object] = []
        for each in posted:
            try:
                results.append((await each.wait()).offset)
            except RecordTooLargeError as error:
                results.append(type(error))
        assert results == [0, RecordTooLargeError, 1, 2]
        assert values(cluster) == ["a", "c", "d"]
        assert await send_all(producer, "e") == [3]

    async def run() -> None:
        async with MemoryCluster() as cluster, producing(cluster) as producer:
            cluster.create_topic("t", 1, configs={"max.message.bytes": "500"})
            await main(cluster, producer)

    run_virtual_on(backend, run)


def test_a_record_above_the_limit_of_requests_is_not_sent(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_producer, "MAX_REQUEST_BYTES", 1000)

    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        with pytest.raises(RecordTooLargeError, match="at most 1,000"):
            await send_all(producer, "a" * 1000)
        assert await send_all(producer, "b") == [0]

    in_cluster(backend, main)


def test_batches_end_before_the_limit_of_topics(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_producer, "BATCH_BYTES", 300)

    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        sequences = Sequences(cluster)
        names = ["x" * 50] * 12
        await send_all(producer, *names)
        assert values(cluster) == names
        assert [sequence for _, sequence in sequences.seen] == [0, 3, 6, 9]

    in_cluster(backend, main)


def test_a_leader_change_is_followed(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        assert await send_all(producer, "a") == [0]
        cluster.move_leader("t")
        assert await send_all(producer, "b") == [1]
        cluster.kill_broker(cluster.leader("t"))
        assert await send_all(producer, "c") == [2]
        assert values(cluster) == ["a", "b", "c"]

    in_cluster(backend, main, brokers=3, configs={"default.replication.factor": "3"})


def test_no_leader_ends_with_the_deadline(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
        began = anyio.current_time()
        with pytest.raises(KafkaTimeoutError, match=r"t-0 failed.*NOT_ENOUGH_REPLICAS"):
            await send_all(producer, "a", timeout=30)
        assert 29 <= anyio.current_time() - began <= 31

    in_cluster(backend, main)


def test_an_error_names_the_time_of_a_record_that_waited_for_another(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
        producer.post("t", 0, new("a"), timeout=60)
        await anyio.sleep(1)
        second = producer.post("t", 0, new("b"), timeout=30)
        with pytest.raises(KafkaTimeoutError, match=r"acknowledged the record within 30 s"):
            await second.wait()

    in_cluster(backend, main)


def test_a_batch_given_up_is_not_taken_for_the_next_one(backend: str) -> None:
    """The broker appends the first batch late, with the sequence that the second one would have."""

    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        async def append_and_hang(call: Call) -> Action:
            await call.proceed()
            await anyio.sleep(100)
            return Action.DROP

        fault = cluster.on("Produce", append_and_hang)
        with pytest.raises(KafkaTimeoutError):
            await send_all(producer, "a", timeout=3)
        fault.stop()
        await send_all(producer, "b")
        assert values(cluster) == ["a", "b"]

    in_cluster(backend, main)


INIT_RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
]


@pytest.mark.parametrize("code", INIT_RETRIED, ids=lambda code: code.name)
def test_errors_of_the_producer_id_that_pass_are_retried(backend: str, code: ErrorCode) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        fault = cluster.on("InitProducerId", lambda call: call.error(code), keep=3)
        assert await send_all(producer, "a") == [0]
        assert fault.hits == 3

    in_cluster(backend, main)


def test_a_refused_producer_id_is_raised(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster.on("InitProducerId", lambda call: call.error(code), keep=1)
        with pytest.raises(ClusterAuthorizationFailedError):
            await send_all(producer, "a")
        assert await send_all(producer, "b") == [0]

    in_cluster(backend, main)


def test_a_lost_request_for_the_producer_id_is_repeated(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        cluster.on("InitProducerId", lambda call: Action.DROP, keep=1)
        assert await send_all(producer, "a") == [0]

    in_cluster(backend, main)


def test_an_unknown_topic_is_an_error_after_the_deadline(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send("absent", new("a"), timeout=10)
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.require_topic("absent", create=False)
        await producer.require_topic("absent", create=True)
        await producer.require_topic("absent", create=True)
        await producer.send("absent", new("a"), timeout=10)
        assert values(cluster, "absent") == ["a"]

    in_cluster(backend, main)


def test_a_topic_is_created_when_brokers_are_known_again(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        fault = cluster.fail("CreateTopics", ErrorCode.INVALID_REPLICATION_FACTOR, times=3)
        await producer.require_topic("new", create=True)
        assert fault.hits == 3
        cluster.fail("CreateTopics", ErrorCode.INVALID_REPLICATION_FACTOR, times=None)
        with pytest.raises(InvalidReplicationFactorError):
            await producer.require_topic("other", create=True)
        cluster.stop_faults()
        cluster.fail("CreateTopics", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.require_topic("third", create=True)

    in_cluster(backend, main)


def test_a_recreated_topic_gets_records_again(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        await send_all(producer, "a")
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        assert await send_all(producer, "b") == [0]

    in_cluster(backend, main)


def test_a_cancelled_wait_withdraws_an_unsent_record(backend: str) -> None:
    async def main(cluster: MemoryCluster, producer: RecordProducer) -> None:
        fault = cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
        first = producer.post("t", 0, new("a"), timeout=60)
        await anyio.sleep(1)
        second = producer.post("t", 0, new("b"), timeout=60)
        with anyio.move_on_after(1):
            await second.wait()
        fault.stop()
        await first.wait()
        assert values(cluster) == ["a"]

    in_cluster(backend, main)


def test_records_in_flight_at_the_end_have_an_error(backend: str) -> None:
    async def run() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
            async with producing(cluster) as producer:
                posted = [producer.post("t", 0, new(name), timeout=60) for name in "ab"]
                await anyio.sleep(1)
            for each in posted:
                with pytest.raises(ConsumerClosedError):
                    await each.wait()

    run_virtual_on(backend, run)
