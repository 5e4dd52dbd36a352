"""The option ``on_error``: the effect of each policy on a batch or record that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kohort.errors import (
    CorruptBatchError,
    DataError,
    DecompressionBudgetError,
    InvalidOptionError,
    NoOffsetForPartitionError,
    RecordDeserializationError,
    RecordTooLargeError,
)
from kohort.subscription import Watermarks
from kohort.types import TopicPartition
from tests.fetcher.bench import Bench, raising_at
from tests.fetcher.making import (
    T0,
    T1,
    Compression,
    CountedLease,
    batch,
    broken,
    compacted,
)


def bench_with(on_error: Any, *partitions: TopicPartition) -> Bench:
    return Bench(*(partitions or (T0,)), buffered={"on_error": on_error})


def refetched(bench: Bench, tp: TopicPartition, *data: bytes, **options: Any) -> None:
    """Add the data as the fetcher does when it fetches the partition again."""
    [target] = [each for each in bench.subscription.fetch_targets() if each.topic_partition == tp]
    bench.put(tp, target.offset, *data, **options)


def read_twice(bench: Bench, *data: bytes, **options: Any) -> None:
    """Add an unreadable fetch of T0 twice."""
    bench.put(T0, 0, *data, **options)
    assert bench.drain() == {}
    refetched(bench, T0, *data, **options)


class TestSkippingRecords:
    def test_what_is_before_and_behind_comes_in_one_drain(self) -> None:
        bench = bench_with("skip")
        bench.put(T0, 0, batch(0, 6), deserialize=raising_at(0, 2, 3, 5))
        assert bench.drain() == {T0: [1, 4]}
        assert bench.position(T0) == 6
        assert bench.drain() == {}
        assert bench.buffer.policy.counters.records_skipped == 4

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_drain_limit_holds_while_position_passes_skipped_records(self, limit: int) -> None:
        bench = bench_with("skip")
        bench.put(T0, 0, batch(0, 4), batch(4, 4), deserialize=raising_at(1, 3, 4, 7))
        seen: list[int] = []
        while drained := bench.drain(limit):
            assert len(drained[T0]) <= limit
            seen += drained[T0]
            position = bench.position(T0)
            assert position is not None and position > seen[-1]
            assert not any(position > missed > seen[-1] for missed in (0, 2, 5, 6))
        assert seen == [0, 2, 5, 6]
        assert bench.position(T0) == 8

    def test_partition_of_bad_records_only_moves_on_and_frees_buffer(self) -> None:
        bench = bench_with("skip", T0, T1)
        lease = CountedLease()
        bench.put(T0, 0, batch(0, 3), deserialize=raising_at(0, 1, 2), lease=lease)
        bench.put(T1, 0, batch(0, 1))
        assert bench.drain() == {T1: [0]}
        assert bench.position(T0) == 3
        assert lease.released == 1
        assert bench.with_room() == {T0, T1}

    def test_each_is_told_with_place_and_size(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = bench_with("skip")
        bench.put(T0, 0, batch(0, 12), deserialize=raising_at(3, 11))
        with caplog.at_level(logging.WARNING, "kohort.fetcher"):
            bench.drain()
        first, second = caplog.messages
        assert "t-0: skipped 1 bytes at offset 3. The next offset is 4. " in first
        assert first.endswith(
            "RecordDeserializationError: the value does not deserialize: LookupError: "
        )
        assert "t-0: skipped 2 bytes at offset 11. The next offset is 12." in second
        assert bench.buffer.policy.counters.bytes_skipped == 3

    def test_an_interrupt_in_the_midst_loses_nothing(self) -> None:
        interrupted: list[int] = []

        def interrupt() -> BaseException:
            interrupted.append(1)
            return KeyboardInterrupt() if len(interrupted) == 3 else LookupError()

        bench = bench_with("skip")
        deserialize = raising_at(1, 3, 4, error=interrupt)
        bench.put(T0, 0, batch(0, 6), deserialize=deserialize)
        with pytest.raises(KeyboardInterrupt):
            bench.drain()
        assert bench.position(T0) == 0
        assert bench.drain(1) == {T0: [0]}
        assert bench.drain(1) == {T0: [2]}
        assert bench.drain(1) == {T0: [5]}
        assert bench.position(T0) == 6

    def test_policy_is_called_after_the_records_that_were_put_back(self) -> None:
        """A drain that is undone must not keep the error that it found."""
        asked: list[int | None] = []

        def policy(error: DataError) -> str:
            asked.append(error.offset)
            return "skip"

        bench = bench_with(policy, T0, T1)
        bench.put(T0, 0, batch(0, 4), deserialize=raising_at(3))
        bench.put(T1, 0, batch(0, 1), deserialize=raising_at(0, error=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bench.drain()
        bench.subscription.pause([T1])
        assert bench.drain(2) == {T0: [0, 1]}
        assert bench.position(T0) == 2
        assert bench.drain(2) == {T0: [2]}
        assert bench.drain(2) == {}
        assert bench.position(T0) == 4
        assert asked == [3]


class TestSkippingBatches:
    def test_a_corrupt_batch_is_fetched_once_more_and_then_passed(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = bench_with("skip")
        data = batch(0, 2), broken(batch(2, 2)), batch(4, 2)
        bench.put(T0, 0, *data)
        assert bench.drain() == {T0: [0, 1]}
        assert bench.drain() == {}
        assert (bench.position(T0), bench.rooms) == (2, 1)
        assert bench.buffer.policy.counters.batches_skipped == 0
        refetched(bench, T0, *data[1:])
        with caplog.at_level(logging.WARNING, "kohort.fetcher"):
            assert bench.drain() == {}
        assert (bench.position(T0), bench.rooms) == (4, 2)
        [warning] = caplog.messages
        assert f"t-0: skipped {len(data[1])} bytes at offset 2. The next offset is 4." in warning
        refetched(bench, T0, data[2])
        assert bench.drain() == {T0: [4, 5]}
        assert bench.buffer.policy.counters.batches_skipped == 1
        assert bench.buffer.policy.counters.bytes_skipped == len(data[1])

    def test_a_batch_that_comes_whole_the_second_time_is_not_lost(self) -> None:
        bench = bench_with("skip")
        bench.put(T0, 0, broken(batch(0, 2)))
        assert bench.drain() == {}
        refetched(bench, T0, batch(0, 2))
        assert bench.drain() == {T0: [0, 1]}
        assert bench.buffer.policy.counters.batches_skipped == 0

    def test_other_partitions_are_neither_lost_nor_delayed(self) -> None:
        bench = bench_with("skip", T0, T1)
        bench.put(T0, 0, broken(batch(0, 2)))
        for offset in range(0, 6, 2):
            bench.put(T1, offset, batch(offset, 2))
            assert bench.drain() == {T1: [offset, offset + 1]}
            if offset == 0:
                refetched(bench, T0, broken(batch(0, 2)))
        assert bench.position(T0) == 2

    def test_a_batch_of_a_size_that_is_not_wanted_is_passed_at_once(self) -> None:
        bench = bench_with("skip")
        big = batch(0, 1000, compression=Compression.GZIP)
        bench.put(T0, 0, big, batch(1000, 1), budget=500)
        assert bench.drain() == {}
        assert bench.position(T0) == 1000

    def test_next_offset_is_fetched_if_the_batch_end_is_unknown(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = bench_with("skip")
        bad = broken(compacted(0, [0, 3], 6))
        with caplog.at_level(logging.WARNING, "kohort.fetcher"):
            read_twice(bench, bad)
            assert bench.drain() == {}
        assert bench.position(T0) == 1
        assert "the end of the batch is unknown" in caplog.text
        assert bench.buffer.policy.counters.bytes_skipped == 0

    def test_an_end_behind_the_end_of_the_log_is_not_believed(self) -> None:
        """The CRC does not cover the base offset. Following it would end in a reset."""
        bench = bench_with("skip")
        bad = broken(batch(5_000, 2))
        read_twice(bench, bad)
        assert bench.drain() == {}
        assert bench.position(T0) == 1
        assert bench.subscription.pending_resets() == []

    def test_what_does_not_come_at_all_is_raised(self) -> None:
        bench = bench_with("skip")
        error = RecordTooLargeError("too large", topic_partition=T0, offset=0)
        bench.fail(T0, error, is_transient=False)
        for _ in range(2):
            with pytest.raises(RecordTooLargeError):
                bench.drain()
        assert bench.position(T0) == 0

    def test_batch_that_is_corrupt_for_the_broker_raises_and_retries(self) -> None:
        bench = bench_with("skip")
        for _ in range(2):
            error = CorruptBatchError("the broker says so", topic_partition=T0, offset=0)
            bench.fail(T0, error, is_transient=True)
            with pytest.raises(CorruptBatchError):
                bench.drain()
            assert bench.drain() == {}
        assert bench.position(T0) == 0

    def test_a_seek_meanwhile_counts(self) -> None:
        def policy(error: DataError) -> str:
            bench.subscription.seek(T0, 7)
            return "skip"

        bench = bench_with(policy)
        read_twice(bench, broken(batch(0, 2)))
        assert bench.drain() == {}
        assert bench.position(T0) == 7


def corrupt(bench: Bench, offset: int = 0) -> None:
    rest = (batch(0, 2), broken(batch(2, 2)), batch(4, 2))
    bench.put(T0, offset, *rest[offset // 2 :])


def undeserializable(bench: Bench, offset: int = 0) -> None:
    bench.put(T0, offset, batch(offset, 6 - offset), deserialize=raising_at(2))


SPOILT = pytest.mark.parametrize(
    ("spoil", "error"),
    [(corrupt, CorruptBatchError), (undeserializable, RecordDeserializationError)],
    ids=["corrupt batch", "raising deserializer"],
)
Spoil = Callable[..., None]


def spoilt_twice(bench: Bench, spoil: Spoil) -> None:
    """Bring T0 to its bad place. Fetch a corrupt batch a second time."""
    spoil(bench)
    assert bench.drain() == {T0: [0, 1]}
    if spoil is corrupt:
        assert bench.drain() == {}
        corrupt(bench, 2)


@SPOILT
class TestPausing:
    def test_partition_is_paused_after_good_records_with_the_error(
        self, spoil: Spoil, error: type[DataError], caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = bench_with("pause", T0, T1)
        spoilt_twice(bench, spoil)
        with caplog.at_level(logging.ERROR, "kohort.fetcher"):
            assert bench.drain() == {}
        [warning] = caplog.messages
        assert "t-0 is paused at offset 2 until resume()" in warning
        assert bench.subscription.paused() == {T0}
        assert bench.position(T0) == 2
        assert isinstance(bench.subscription.snapshot().partitions[T0].status.last_error, error)
        assert bench.buffer.policy.counters.pauses == 1
        bench.put(T1, 0, batch(0, 2))
        assert bench.drain() == {T1: [0, 1]}
        assert bench.drain() == {}
        assert bench.with_room() == {T1}
        assert bench.buffer.queues.bytes_buffered() == 0

    def test_resume_tries_again_and_is_paused_again_or_goes_on(
        self, spoil: Spoil, error: type[DataError]
    ) -> None:
        bench = bench_with("pause")
        spoilt_twice(bench, spoil)
        assert bench.drain() == {}
        bench.subscription.resume([T0])
        spoil(bench, 2)
        assert bench.drain() == {}
        assert bench.subscription.paused() == {T0}
        bench.subscription.resume([T0])
        refetched(bench, T0, batch(2, 4))
        assert bench.drain() == {T0: [2, 3, 4, 5]}


@pytest.mark.parametrize("passing", [True, False])
def test_what_does_not_come_at_all_may_be_paused(passing: bool) -> None:
    bench = bench_with("pause", T0, T1)
    kind = CorruptBatchError if passing else RecordTooLargeError
    bench.put(T1, 0, batch(0, 2))
    bench.fail(T0, kind("no", topic_partition=T0, offset=0), is_transient=passing)
    assert bench.drain() == {T1: [0, 1]}
    assert bench.subscription.paused() == {T0}
    assert bench.drain() == {}
    bench.subscription.resume([T0])
    refetched(bench, T0, batch(0, 2))
    assert bench.drain() == {T0: [0, 1]}


@SPOILT
class TestCallables:
    def test_it_is_given_the_error_and_asked_before_each_raise(
        self, spoil: Spoil, error: type[DataError]
    ) -> None:
        asked: list[DataError] = []

        def policy(error: DataError) -> str:
            asked.append(error)
            return "raise" if len(asked) < 3 else "skip"

        bench = bench_with(policy)
        spoilt_twice(bench, spoil)
        for count in (1, 2):
            with pytest.raises(error):
                bench.drain()
            assert bench.drain(repeat_errors=False) == {}
            assert len(asked) == count
        bench.drain()
        position = bench.position(T0)
        assert position is not None and position > 2
        assert {(each.topic_partition, each.offset) for each in asked} == {(T0, 2)}
        assert all(each.raw and each.next_offset for each in asked)
        cause = asked[0].__cause__
        assert isinstance(cause, LookupError) == (error is RecordDeserializationError)

    def test_what_it_raises_is_raised_and_costs_no_records(
        self, spoil: Spoil, error: type[DataError]
    ) -> None:
        class Mine(Exception):
            pass

        def policy(error: DataError) -> str:
            raise Mine from error

        bench = bench_with(policy, T0, T1)
        spoilt_twice(bench, spoil)
        bench.put(T1, 0, batch(0, 2))
        assert bench.drain() == {T1: [0, 1]}
        for _ in range(2):
            with pytest.raises(Mine) as raised:
                bench.drain()
            assert isinstance(raised.value.__cause__, error)
        assert bench.position(T0) == 2

    def test_an_answer_that_means_nothing_is_told(
        self, spoil: Spoil, error: type[DataError]
    ) -> None:
        bench = bench_with(lambda error: None)
        spoilt_twice(bench, spoil)
        with pytest.raises(InvalidOptionError, match="on_error returned None") as raised:
            bench.drain()
        assert isinstance(raised.value.__cause__, error)
        assert bench.position(T0) == 2


def test_on_error_is_called_again_after_the_error_was_withdrawn() -> None:
    """A retry withdraws an error that was decided on and not raised yet."""
    asked: list[DataError] = []

    def policy(error: DataError) -> str:
        asked.append(error)
        return "raise" if len(asked) == 1 else "pause"

    bench = bench_with(policy, T0, T1)
    error = CorruptBatchError("no", topic_partition=T0, offset=0)
    bench.put(T1, 0, batch(0, 2))
    bench.fail(T0, error, is_transient=True)
    assert bench.drain() == {T1: [0, 1]}
    bench.buffer.queues.note_up_to_date([(T0, bench.epoch(T0), Watermarks())], 0.0)
    assert bench.drain() == {}
    bench.fail(T0, error, is_transient=True)
    assert bench.drain() == {}
    assert asked == [error, error]
    assert bench.subscription.paused() == {T0}


def test_policy_is_not_called_for_errors_other_than_bad_data() -> None:
    bench = bench_with("skip")
    bench.fail(T0, NoOffsetForPartitionError("nowhere", topic_partition=T0), is_transient=False)
    with pytest.raises(NoOffsetForPartitionError):
        bench.drain()


def test_the_budget_is_told_apart_from_corruption() -> None:
    asked: list[type[DataError]] = []

    def policy(error: DataError) -> str:
        asked.append(type(error))
        return "pause"

    bench = bench_with(policy)
    bench.put(T0, 0, batch(0, 1000, compression=Compression.GZIP), budget=500)
    assert bench.drain() == {}
    assert asked == [DecompressionBudgetError]
