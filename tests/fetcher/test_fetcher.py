"""The fetcher with a scripted cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.errors import (
    BrokerResponseError,
    CorruptBatchError,
    ErrorCode,
    FrameTooLargeError,
    IllegalStateError,
    KafkaConnectionError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from kohort.protocol.messages import FetchResponse
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import Leader
from kohort.types import TopicPartition
from tests.fetcher.fake import FakeCluster, consuming
from tests.fetcher.making import (
    T0,
    T1,
    T2,
    Compression,
    ControlType,
    batch,
    broken,
    compacted,
    marker,
    owning,
)

pytestmark = pytest.mark.anyio

virtual_time = pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
"""Mark of tests that depend on durations."""


def asked(cluster: FakeCluster, number: int = -1) -> dict[TopicPartition, int]:
    """Return the partitions and offsets of one of the fetches sent."""
    request = cluster.fetches[number][2]
    return {
        TopicPartition(topic.topic, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def add_filled(cluster: FakeCluster, tp: TopicPartition, batches: int) -> None:
    """Add a partition with batches of ten records."""
    log = cluster.add(tp)
    for first in range(0, 10 * batches, 10):
        log.append(first + 10, batch(first, 10))


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class TestFetching:
    async def test_everything_comes_once_and_in_order(self) -> None:
        cluster = FakeCluster()
        for tp, node in ((T0, 1), (T1, 2), (T2, 1)):
            log = cluster.add(tp, node)
            for first in range(0, 100, 10):
                log.append(first + 10, batch(first, 10, compression=Compression.LZ4))
        async with consuming(cluster, owning(T0, T1, T2)) as consumer:
            result = await consumer.read(300)
            assert result == {tp: list(range(100)) for tp in (T0, T1, T2)}
            assert await consumer.poll(timeout=0.0) == {}

    async def test_the_request_says_what_is_wanted_and_how(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0, epoch=8)
        subscription = owning(T0, offset=0)
        options = {
            "fetch_min_bytes": 3,
            "fetch_max_bytes": 999,
            "max_partition_fetch_bytes": 77,
            "isolation_level": "read_committed",
        }
        async with consuming(cluster, subscription, **options):
            await settled()
        [(node, purpose, request)] = cluster.fetches
        assert (node, purpose) == (1, "fetch")
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (200, 3, 999)
        assert request.isolation_level == 1
        assert (request.session_id, request.session_epoch) == (0, 0)
        [partition] = request.topics[0].partitions
        assert partition.current_leader_epoch == 8
        assert partition.partition_max_bytes == 77

    async def test_new_records_come_as_soon_as_they_are_there(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        async with consuming(cluster, owning(T0), fetch_max_wait_ms=20_000) as consumer:
            assert await consumer.poll(timeout=0.01) == {}
            cluster.produce(T0, 3, batch(0, 3))
            assert await consumer.poll(timeout=10) == {T0: [0, 1, 2]}

    async def test_it_reads_ahead_of_the_caller_and_then_waits_for_room(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        for first in range(0, 50, 10):
            log.append(first + 10, batch(first, 10))
        size = len(batch(10, 10))
        async with consuming(cluster, owning(T0), max_partition_fetch_bytes=size) as consumer:
            await settled()
            assert [asked(cluster, n)[T0] for n in range(len(cluster.fetches))] == [0, 10]
            assert await consumer.poll(limit=9) == {T0: list(range(9))}
            await settled()
            assert len(cluster.fetches) == 2
            assert await consumer.poll(limit=1) == {T0: [9]}
            await settled()
            assert asked(cluster)[T0] == 20
            assert len(cluster.fetches) == 3

    async def test_paused_revoked_and_unpositioned_partitions_do_not_fetch(self) -> None:
        cluster = FakeCluster()
        extra = TopicPartition("t", 3)
        for tp in (T0, T1, T2, extra):
            cluster.add(tp)
        subscription = SubscriptionState()
        subscription.assign([T0, T1, T2, extra])
        for tp in (T0, T1, extra):
            subscription.seek(tp, 0)
        subscription.pause([T0])
        subscription.mark_pending_revocation([T1])
        async with consuming(cluster, subscription) as consumer:
            await settled()
            assert asked(cluster) == {extra: 0}
            subscription.resume([T0])
            consumer.fetcher.wake()
            with anyio.fail_after(60):
                while asked(cluster) != {T0: 0, extra: 0}:
                    await consumer.poll(timeout=0.05)

    async def test_next_fetch_is_sent_before_the_caller_is_woken(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.append(10, batch(0, 10))
        async with consuming(cluster, owning(T0), fetch_pace_ms=0) as consumer:
            assert await consumer.poll() == {T0: list(range(10))}
            await settled()
            assert asked(cluster) == {T0: 10}

    async def test_a_partition_that_was_served_goes_behind_the_others(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(1, batch(0, 1))
        cluster.add(T1)
        async with consuming(cluster, owning(T0, T1), fetch_pace_ms=0) as consumer:
            await consumer.poll()
            await settled()
            assert list(asked(cluster, 0)) == [T0, T1]
            assert list(asked(cluster, 1)) == [T1, T0]

    async def test_a_seek_drops_the_fetch_in_flight(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        for first in range(0, 40, 10):
            log.append(first + 10, batch(first, 10))
        async with consuming(cluster, owning(T0, offset=0)) as consumer:
            while not cluster.fetches:
                await anyio.lowlevel.checkpoint()
            consumer.seek(T0, 35)
            assert await consumer.read(5) == {T0: [35, 36, 37, 38, 39]}

    async def test_aborted_transactions_are_omitted_and_stable_end_known(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        transaction = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
        log.append(2, batch(0, 2, **transaction))
        log.append(3, marker(2, ControlType.ABORT, 9))
        log.append(5, batch(3, 2, **transaction))
        log.stable = 5

        def with_aborted(node: int, request: Any) -> Any:
            response, _ = cluster.answer(node, request)
            aborted = FetchResponse.AbortedTransaction(producer_id=9, first_offset=0)
            response.responses[0].partitions[0].aborted_transactions = [aborted]
            return response

        cluster.scripts.append(with_aborted)
        options = {"isolation_level": "read_committed"}
        async with consuming(cluster, owning(T0), **options) as consumer:
            assert await consumer.poll() == {T0: [3, 4]}
            state = consumer.subscription.snapshot().partitions[T0]
        assert state.position == 5 and state.watermarks is not None
        assert state.watermarks[1:] == (5, 0), "last stable offset, start of the log"

    async def test_metrics_count(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(10, batch(0, 10))
        async with consuming(cluster, owning(T0)) as consumer:
            await consumer.poll()
            metrics = consumer.fetcher.metrics()
        assert metrics["records-consumed-total"] == 10
        assert metrics["bytes-consumed-total"] == len(batch(0, 10))
        assert metrics["fetch-total"] >= 1


LONG_POLL = {"fetch_max_wait_ms": 300_000, "request_timeout_ms": 330_000}
"""A fetch that waits behind another one does not end within the time of the test."""


class TestLongPolls:
    async def test_a_sought_partition_does_not_wait_behind_a_parked_fetch(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        cluster.add(T1).append(10, batch(0, 10))
        subscription = owning(T0, T1, offset=0)
        subscription.seek(T1, 10)
        async with consuming(cluster, subscription, **LONG_POLL) as consumer:
            await anyio.sleep(0.05)
            consumer.seek(T1, 4)
            with anyio.fail_after(90):
                assert await consumer.poll(timeout=60) == {T1: [4, 5, 6, 7, 8, 9]}
        assert [purpose for _, purpose, _ in cluster.fetches][:2] == ["fetch", "fetch-side"]

    async def test_a_drained_partition_does_not_wait_behind_an_idle_one(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        add_filled(cluster, T1, 10)
        options = LONG_POLL | {"max_partition_fetch_bytes": 1}
        async with consuming(cluster, owning(T0, T1), **options) as consumer:
            with anyio.fail_after(60):
                assert await consumer.read(100) == {T1: list(range(100))}

    @virtual_time
    @pytest.mark.parametrize("work", [0.0, 0.003, 0.05])
    async def test_backlog_does_not_wait_for_partitions_at_their_ends(self, work: float) -> None:
        """One of several partitions is behind, and the caller works on each of its fetches."""
        cluster = FakeCluster()
        cluster.delay = 0.001
        cluster.add(T0)
        add_filled(cluster, T1, 100)
        async with consuming(cluster, owning(T0, T1), max_partition_fetch_bytes=1) as consumer:
            began, read = anyio.current_time(), 0
            while read < 1000:
                for offsets in (await consumer.poll(timeout=30)).values():
                    read += len(offsets)
                await anyio.sleep(work)
            assert anyio.current_time() - began < 100 * (work + 3 * cluster.delay)

    @virtual_time
    @pytest.mark.parametrize("moment", [0.03, 0.1, 0.25])
    async def test_watermark_beyond_the_records_causes_few_fetches(self, moment: float) -> None:
        """The broker has no record below it, as after a deletion of the last ones."""
        cluster = FakeCluster()
        cluster.add(T0)
        add_filled(cluster, T1, 3)
        cluster.logs[T1].end = 1000
        async with consuming(cluster, owning(T0, T1), max_partition_fetch_bytes=1) as consumer:
            await consumer.read(30)
            await anyio.sleep(moment)
            consumer.seek(T1, 30)  # during a long poll of the main connection
            await anyio.sleep(1)
            before = len(cluster.fetches)
            await anyio.sleep(20)
            purposes = [purpose for _, purpose, _ in cluster.fetches[before:]]
            assert len(purposes) < 150
            assert purposes.count("fetch-side") < 10

    @virtual_time
    async def test_a_refused_extra_connection_delays_a_backlog_once_only(self) -> None:
        cluster = FakeCluster()
        cluster.delay = 0.001
        cluster.failing.add((1, "fetch-side"))
        cluster.add(T0)
        add_filled(cluster, T1, 100)
        options = {"max_partition_fetch_bytes": 1}
        async with consuming(cluster, owning(T0, T1), **options) as consumer:
            read = 0
            while read < 1000:
                for offsets in (await consumer.poll(timeout=30)).values():
                    read += len(offsets)
                await anyio.sleep(0.003)
        assert [purpose for _, purpose, _ in cluster.fetches].count("fetch-side") == 1

    async def test_failure_of_the_extra_connection_does_not_shorten_a_throttle(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        async with consuming(cluster, owning(T0)) as consumer:
            planner = consumer.fetcher._planner
            connections, now = planner.connections(1), anyio.current_time()
            connections.not_before = until = now + 30
            planner.note_failure(connections.extra, now)
            assert connections.not_before == until

    @virtual_time
    async def test_full_partition_finds_a_free_connection_when_it_has_room(self) -> None:
        """If partitions reach their ends one by one, both connections could wait for them."""
        cluster = FakeCluster()
        cluster.add(T0)
        add_filled(cluster, T1, 3)
        add_filled(cluster, T2, 40)
        options = {"fetch_max_wait_ms": 20_000, "max_partition_fetch_bytes": 1}
        async with consuming(cluster, owning(T0, T1, T2), **options) as consumer:
            read: list[int] = []
            began = anyio.current_time()
            while len(read) < 430:
                await anyio.sleep(0.05)  # until everything has room and is in flight
                for offsets in (await consumer.poll(timeout=30)).values():
                    read += offsets
            assert anyio.current_time() - began < 20
            asked = len(cluster.fetches)
            await anyio.sleep(200)
            assert len(cluster.fetches) - asked < 25, "with room for all, fetches are long polls"

    @virtual_time
    async def test_fetches_beside_a_full_partition_wait_longer_each_time(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        add_filled(cluster, T1, 10)
        options = {"fetch_max_wait_ms": 1_000, "max_partition_fetch_bytes": 1}
        async with consuming(cluster, owning(T0, T1), **options):
            await anyio.sleep(5)
            before = len(cluster.fetches)
            await anyio.sleep(10)  # the caller does not poll
            assert 9 <= len(cluster.fetches) - before <= 25

    @virtual_time
    @pytest.mark.parametrize("what", ["much is waited for", "an error stands"])
    async def test_others_are_parked_as_ever_where(self, what: str) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        add_filled(cluster, T1, 10)
        options: dict[str, Any] = {"fetch_max_wait_ms": 1_000, "max_partition_fetch_bytes": 1}
        if what == "much is waited for":
            options["fetch_min_bytes"] = 100_000
        else:
            cluster.logs[T1].batches = [(10, broken(batch(0, 10)))]
        async with consuming(cluster, owning(T0, T1), **options) as consumer:
            if what == "an error stands":
                with pytest.raises(CorruptBatchError):
                    await consumer.poll(timeout=5)
            await anyio.sleep(2)
            before = len(cluster.fetches)
            await anyio.sleep(10)
            waits = {request.max_wait_ms for _, _, request in cluster.fetches[before:]}
            assert waits
            assert min(waits) > 500

    @virtual_time
    async def test_partitions_meet_again_on_the_main_lane(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        cluster.add(T1)
        async with consuming(cluster, owning(T0, T1), fetch_max_wait_ms=200) as consumer:
            await anyio.sleep(0.05)
            consumer.seek(T1, 0)
            await anyio.sleep(0.5)
        last = [
            number for number, (_, purpose, _) in enumerate(cluster.fetches) if purpose == "fetch"
        ]
        assert asked(cluster, last[-1]).keys() == {T0, T1}
        assert len(cluster.fetches) < 10


class TestErrors:
    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ],
    )
    async def test_an_error_that_passes_is_retried_without_a_word(self, code: int) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.append(2, batch(0, 2))
        log.codes.extend([code] * 4)
        async with consuming(cluster, owning(T0)) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}
        assert len(cluster.fetches) >= 5
        if code not in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE):
            assert cluster.refreshes >= 4

    async def test_a_new_leader_is_followed(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0, node=1).append(2, batch(0, 2))
        async with consuming(cluster, owning(T0)) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}
            cluster.leaders[T0] = Leader(2, 6)
            cluster.produce(T0, 4, batch(2, 2))
            assert await consumer.poll() == {T0: [2, 3]}
        node, _, request = cluster.fetches[-1]
        assert node == 2
        assert request.topics[0].partitions[0].current_leader_epoch == 6

    @virtual_time
    async def test_silent_leader_does_not_delay_the_next_leader(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0, node=1).append(2, batch(0, 2))
        async with consuming(cluster, owning(T0), fetch_max_wait_ms=20_000) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}
            await anyio.sleep(1)
            cluster.logs[T0].append(4, batch(2, 2))  # does not wake the fetch at broker 1
            cluster.leaders[T0] = Leader(2, 6)
            consumer.fetcher.wake()
            with anyio.fail_after(1):
                assert await consumer.poll() == {T0: [2, 3]}
            await anyio.sleep(30)  # the late response of broker 1 changes nothing
            cluster.produce(T0, 6, batch(4, 2))
            assert await consumer.poll() == {T0: [4, 5]}
            assert await consumer.poll(timeout=1) == {}

    async def test_a_partition_without_a_leader_waits_for_one(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        leader = cluster.leaders.pop(T0)
        async with consuming(cluster, owning(T0)) as consumer:
            assert await consumer.poll(timeout=0.2) == {}
            assert 2 <= cluster.refreshes <= 25
            assert cluster.fetches == []
            cluster.leaders[T0] = leader
            assert await consumer.poll() == {T0: [0, 1]}

    @virtual_time
    @pytest.mark.parametrize("positioned", [True, False])
    async def test_a_leader_that_turns_up_is_asked_at_once(self, positioned: bool) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        leader = cluster.leaders.pop(T0)
        subscription = owning(T0) if positioned else SubscriptionState(OffsetReset.EARLIEST)
        if not positioned:
            subscription.assign([T0])
            subscription.request_reset(T0)
        async with consuming(cluster, subscription, retry_backoff_max_ms=1000) as consumer:
            await anyio.sleep(10)
            assert cluster.refreshes <= 30, "look-ups use a back-off"
            cluster.leaders[T0] = leader
            consumer.fetcher.wake()
            began = anyio.current_time()
            assert await consumer.poll() == {T0: [0, 1]}
            assert anyio.current_time() == began

    async def test_one_failing_partition_does_not_hold_up_another(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.codes.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000)
        cluster.add(T1)
        async with consuming(cluster, owning(T0, T1), retry_backoff_max_ms=40) as consumer:
            for end in range(1, 6):
                cluster.produce(T1, end, batch(end - 1, 1))
                assert await consumer.poll() == {T1: [end - 1]}

    @pytest.mark.parametrize("failure", [KafkaConnectionError("gone"), ValueError("a bug")])
    async def test_a_broker_that_fails_is_asked_again_after_a_pause(
        self, failure: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        cluster.scripts.extend([lambda node, request: failure] * 3)
        async with consuming(cluster, owning(T0)) as consumer:
            result: dict[TopicPartition, list[int]] = {}
            while not result:
                try:
                    result = await consumer.poll()
                except Exception as error:
                    assert "a bug" in str(error)
        assert result == {T0: [0, 1]}
        assert cluster.refreshes >= 3
        assert consumer.fetcher.metrics()["fetch-error-total"] == 3

    async def test_protocol_violation_is_raised_each_time_and_retried(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        cluster.scripts.extend([lambda node, request: FrameTooLargeError("a frame of 2 GB")] * 2)
        async with consuming(cluster, owning(T0)) as consumer:
            for _ in range(2):
                with pytest.raises(FrameTooLargeError):
                    await consumer.poll()
            assert await consumer.poll() == {T0: [0, 1]}

    async def test_the_end_of_the_cluster_client_is_not_reported(self) -> None:
        """The consumer ends with it, and says why."""
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        subscription = owning(T0, T1)
        subscription.request_reset(T1)
        cluster.add(T1)
        cluster.scripts.extend([lambda node, request: IllegalStateError("not running")] * 4)
        async with consuming(cluster, subscription) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}
            assert not cluster.scripts

    async def test_an_error_of_the_whole_answer_is_retried(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        cluster.scripts.append(lambda node, request: FetchResponse(error_code=code))
        async with consuming(cluster, owning(T0)) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}

    @pytest.mark.parametrize(
        ("code", "error"),
        [
            (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerResponseError),
            (ErrorCode.CORRUPT_MESSAGE, CorruptBatchError),
            (31_999, BrokerResponseError),
        ],
    )
    async def test_an_error_for_the_caller_is_raised_and_the_others_go_on(
        self, code: int, error: type[Exception]
    ) -> None:
        cluster = FakeCluster()
        cluster.add(T0).codes.extend([code] * 1000)
        cluster.add(T1).append(2, batch(0, 2))
        async with consuming(cluster, owning(T0, T1)) as consumer:
            raised, result = 0, {}
            while raised < 3:
                try:
                    result.update(await consumer.poll())
                except error as caught:
                    assert "t-0" in str(caught)
                    raised += 1
            assert result == {T1: [0, 1]}
            cluster.logs[T0].codes.clear()
            cluster.produce(T0, 2, batch(0, 2))
            result = {}
            while not result:
                try:
                    result = await consumer.poll()
                except error:
                    pass
            assert result == {T0: [0, 1]}

    @pytest.mark.parametrize("spoilt", ["corrupt", "deserializer"])
    @virtual_time
    async def test_poison_costs_neither_requests_nor_time(self, spoilt: str) -> None:
        """In other clients one bad batch or one raising deserializer makes poll() spin forever."""
        cluster = FakeCluster()
        bad = broken(batch(2, 2)) if spoilt == "corrupt" else batch(2, 2)
        cluster.add(T0).append(2, batch(0, 2))
        cluster.logs[T0].append(4, bad)
        cluster.logs[T0].append(6, batch(4, 2))
        cluster.add(T1)
        calls = 0

        def value(topic: str, headers: Any, data: bytes | None) -> Any:
            nonlocal calls
            calls += 1
            if spoilt == "deserializer" and data == b"2":
                raise LookupError("poison")
            return data

        options = {"fetch_max_wait_ms": 100, "value_deserializer": value}
        async with consuming(cluster, owning(T0, T1), **options) as consumer:
            assert await consumer.poll() == {T0: [0, 1]}
            expected = CorruptBatchError if spoilt == "corrupt" else RecordDeserializationError
            before = len(cluster.fetches), calls
            start = anyio.current_time()
            for _ in range(4):
                with pytest.raises(expected):
                    await consumer.poll(timeout=0.1)
            # The first poll raises immediately, the other three after their timeout. T1 is
            # long-polled.
            assert anyio.current_time() - start > 0.29
            assert len(cluster.fetches) - before[0] <= 8
            assert calls - before[1] <= 20
            assert {T0} & asked(cluster).keys() == set()
            cluster.produce(T1, 1, batch(0, 1))
            assert await consumer.poll() == {T1: [0]}
            consumer.seek(T0, 4)
            assert await consumer.read(2) == {T0: [4, 5]}

    @virtual_time
    async def test_immediate_empty_responses_cause_no_busy_loop(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        cluster.scripts.extend([lambda node, request: FetchResponse()] * 1000)
        async with consuming(cluster, owning(T0), retry_backoff_ms=40) as consumer:
            assert await consumer.poll(timeout=0.2) == {}
        assert len(cluster.fetches) <= 8

    async def test_records_only_before_the_offset_raise_without_busy_loop(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.append(2, batch(0, 2))
        log.batches = [(99, batch(0, 2))]
        log.end = 50
        async with consuming(cluster, owning(T0, offset=10)) as consumer:
            with pytest.raises(CorruptBatchError, match="only records up to 1"):
                await consumer.poll()
            assert len(cluster.fetches) <= 2

    @virtual_time
    async def test_throttling_is_obeyed(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))

        def throttled(node: int, request: Any) -> Any:
            response, _ = cluster.answer(node, request)
            response.throttle_time_ms = 150
            return response

        cluster.scripts.append(throttled)
        async with consuming(cluster, owning(T0)) as consumer:
            await consumer.poll()
            await anyio.sleep(0.1)
            assert len(cluster.fetches) == 1
            await anyio.sleep(0.1)
            assert len(cluster.fetches) == 2
            assert consumer.fetcher.metrics()["fetch-throttle-time-max"] == 150


class TestSizes:
    async def test_a_batch_larger_than_the_fetch_size_comes_whole(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(100, batch(0, 100))
        async with consuming(cluster, owning(T0), max_partition_fetch_bytes=10) as consumer:
            assert await consumer.poll() == {T0: list(range(100))}

    async def test_a_broker_that_cuts_the_first_batch_is_asked_for_more(self) -> None:
        cluster = FakeCluster()
        whole = batch(0, 100)
        cluster.add(T0).append(100, whole)
        cut = cutting(cluster)
        cluster.scripts.extend([cut] * 10)
        async with consuming(cluster, owning(T0), max_partition_fetch_bytes=20) as consumer:
            assert await consumer.poll() == {T0: list(range(100))}
        sizes = [f[2].topics[0].partitions[0].partition_max_bytes for f in cluster.fetches]
        assert sizes[0] == 20
        assert len(whole) in sizes

    async def test_batch_that_does_not_fit_raises_and_is_not_skipped(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(100, batch(0, 100))
        cluster.scripts.extend([cutting(cluster)] * 10)
        options = {"max_partition_fetch_bytes": 20, "fetch_max_bytes": 50}
        async with consuming(cluster, owning(T0), **options) as consumer:
            for timeout in (20.0, 0.05):
                with pytest.raises(RecordTooLargeError, match="fetch_max_bytes") as raised:
                    await consumer.poll(timeout=timeout)
                assert (raised.value.topic_partition, raised.value.offset) == (T0, 0)
            assert consumer.subscription.position(T0) == 0
            assert len(cluster.fetches) <= 3


def cutting(cluster: FakeCluster) -> Callable[[int, Any], Any]:
    """Return a script that cuts responses to the requested size, as brokers did before KIP-74."""

    def cut(node: int, request: Any) -> Any:
        response, _ = cluster.answer(node, request)
        [data], [asked] = response.responses[0].partitions, request.topics[0].partitions
        data.records = bytes(data.records or b"")[: asked.partition_max_bytes]
        return response

    return cut


class TestPositions:
    @pytest.mark.parametrize(
        ("strategy", "offset"), [(OffsetReset.EARLIEST, 4), (OffsetReset.LATEST, 10)]
    )
    async def test_a_missing_position_is_looked_up_by_the_rule(
        self, strategy: OffsetReset, offset: int
    ) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.append(10, batch(4, 6))
        log.start = 4
        log.codes.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
        subscription = SubscriptionState(strategy)
        subscription.assign([T0])
        subscription.request_reset(T0)
        async with consuming(cluster, subscription) as consumer:
            cluster.produce(T0, 12, batch(10, 2))
            if offset == 4:
                assert await consumer.poll(timeout=10) == {T0: list(range(offset, 12))}
            with anyio.fail_after(60):
                while subscription.position(T0) is None:
                    assert await consumer.poll(timeout=0.05) == {}
            assert subscription.position(T0) == 12

    async def test_missing_position_without_reset_policy_raises_until_seek(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        subscription = SubscriptionState(OffsetReset.NONE)
        subscription.assign([T0])
        subscription.request_reset(T0)
        async with consuming(cluster, subscription) as consumer:
            for seconds in (10, 0.02, 0.02):
                with pytest.raises(NoOffsetForPartitionError, match="seek"):
                    await consumer.poll(timeout=seconds)
            assert cluster.lookups == []
            consumer.seek(T0, 0)
            assert await consumer.poll() == {T0: [0, 1]}

    async def test_a_look_up_that_is_not_allowed_is_told(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).codes.extend([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2)
        subscription = SubscriptionState(OffsetReset.EARLIEST)
        subscription.assign([T0])
        subscription.request_reset(T0)
        async with consuming(cluster, subscription) as consumer:
            with pytest.raises(TopicAuthorizationFailedError, match="looking up"):
                await consumer.poll()
            cluster.produce(T0, 1, batch(0, 1))
            assert await consumer.poll() == {T0: [0]}

    async def test_a_leader_that_is_not_there_is_waited_for(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(1, batch(0, 1))
        leader = cluster.leaders.pop(T0)
        subscription = SubscriptionState(OffsetReset.EARLIEST)
        subscription.assign([T0])
        subscription.request_reset(T0)
        async with consuming(cluster, subscription) as consumer:
            assert await consumer.poll(timeout=0.1) == {}
            cluster.leaders[T0] = leader
            assert await consumer.poll() == {T0: [0]}

    async def test_a_seek_wins_over_a_look_up_under_way(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(10, batch(0, 10))
        subscription = SubscriptionState(OffsetReset.EARLIEST)
        subscription.assign([T0])
        subscription.request_reset(T0)
        async with consuming(cluster, subscription) as consumer:
            while not cluster.lookups:
                await anyio.lowlevel.checkpoint()
            consumer.seek(T0, 8)
            assert await consumer.read(2) == {T0: [8, 9]}

    async def test_an_offset_out_of_range_is_reset_after_what_is_buffered(self) -> None:
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.append(10, batch(0, 10))
        subscription = owning(T0, default_reset=OffsetReset.EARLIEST)
        async with consuming(cluster, subscription) as consumer:
            await settled()
            log.codes.append(ErrorCode.OFFSET_OUT_OF_RANGE)
            cluster.produce(T0, 10)
            await settled()
            assert (await consumer.poll())[T0] == list(range(10))
            log.start, log.batches = 5, [(10, compacted(5, [5, 6, 7, 8, 9], 9))]
            assert (await consumer.poll())[T0] == [5, 6, 7, 8, 9]

    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [
            (OffsetReset.EARLIEST, [4, 5, 6, 7, 8, 9, 10, 11]),
            (OffsetReset.LATEST, [10, 11]),
            (OffsetReset.from_option("by_duration:PT2S"), [7, 8, 9, 10, 11]),
            (OffsetReset.from_option("by_duration:PT0S"), [10, 11]),
            (OffsetReset.from_option("by_duration:P365000D"), [4, 5, 6, 7, 8, 9, 10, 11]),
        ],
        ids=["earliest", "latest", "2 s", "0 s", "1,000 years"],
    )
    @pytest.mark.parametrize("positioned", [True, False])
    async def test_each_rule_says_where_to_go_on(
        self, strategy: OffsetReset, expected: list[int], positioned: bool
    ) -> None:
        """For resets by time, the record with offset n has the timestamp 1 s plus n ms."""
        cluster = FakeCluster()
        log = cluster.add(T0)
        log.start, log.end = 4, 10
        log.batches = [(n + 1, batch(n, 1)) for n in range(4, 10)]
        subscription = SubscriptionState(strategy)
        subscription.assign([T0])
        if positioned:
            subscription.seek(T0, 70)  # out of range
        else:
            subscription.request_reset(T0)
        seen: list[int] = []
        async with consuming(cluster, subscription, wall_clock=lambda: 3.007) as consumer:
            with anyio.fail_after(60):
                while subscription.position(T0) in (None, 70):
                    seen += (await consumer.poll(timeout=0.02)).get(T0, [])
                cluster.produce(T0, 12, batch(10, 2))
                while len(seen) < len(expected):
                    seen += (await consumer.poll()).get(T0, [])
        assert seen == expected

    async def test_an_offset_out_of_range_is_an_error_without_a_rule(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(2, batch(0, 2))
        subscription = owning(T0, offset=70, default_reset=OffsetReset.NONE)
        async with consuming(cluster, subscription) as consumer:
            for seconds in (10, 0.02, 0.02):  # the first poll waits for the response
                with pytest.raises(OffsetOutOfRangeError, match="offset 70"):
                    await consumer.poll(timeout=seconds)
            assert len(cluster.fetches) == 1
            assert consumer.subscription.position(T0) == 70
            consumer.seek(T0, 0)
            assert await consumer.poll() == {T0: [0, 1]}
