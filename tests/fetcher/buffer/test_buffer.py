"""The buffer: the records, the order and the errors of a drain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort.errors import (
    CorruptBatchError,
    DataError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicAuthorizationFailedError,
)
from kohort.fetcher import FetchBuffer, RecordTarget
from kohort.fetcher.buffer._deserialize import record_deserializer
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.fetcher.bench import Bench, raising_at
from tests.fetcher.making import (
    T0,
    T1,
    T2,
    ControlType,
    CountedLease,
    batch,
    broken,
    fetched,
    marker,
    offsets,
    owning,
    with_room,
)


class TestDraining:
    def test_the_epoch_is_of_the_batch_before_the_position(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, batch(0, 2), marker(2, ControlType.COMMIT, 1, leader_epoch=4))
        bench.buffer.drain(1)
        assert bench.subscription.positions_for_commit()[T0] == OffsetAndMetadata(1, "", 3)
        bench.buffer.drain(10)
        bench.buffer.drain(10)
        assert bench.subscription.positions_for_commit()[T0] == OffsetAndMetadata(3, "", 4)

    def test_only_returned_records_move_the_position(self) -> None:
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 5))
        bench.put(T1, 0, batch(0, 5))
        [target, _] = bench.subscription.fetch_targets()
        assert target.offset == 5
        assert (bench.position(T0), bench.position(T1)) == (0, 0)
        assert bench.drain(3) == {T0: [0, 1, 2]}
        assert (bench.position(T0), bench.position(T1)) == (3, 0)
        assert bench.subscription.positions_for_commit()[T0] == OffsetAndMetadata(3, "", 3)

    def test_partitions_take_turns(self) -> None:
        bench = Bench(T0, T1, T2)
        for tp in (T0, T1, T2):
            bench.put(tp, 0, batch(0, 10))
        turns = [list(bench.drain(2)) for _ in range(6)]
        assert turns == [[T0], [T1], [T2], [T0], [T1], [T2]]

    def test_drain_takes_from_fetches_and_partitions_up_to_its_limit(self) -> None:
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 2))
        bench.put(T0, 2, batch(2, 2))
        bench.put(T1, 0, batch(0, 9))
        assert bench.drain(6) == {T0: [0, 1, 2, 3], T1: [0, 1]}

    def test_it_is_empty_after_a_drain_that_took_all_until_more_arrives(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, batch(0, 5))
        is_empty = [bench.buffer.is_empty]
        for _ in range(3):  # the third one finds nothing
            bench.drain(3)
            is_empty.append(bench.buffer.is_empty)
        bench.put(T0, 5, batch(5, 2))
        is_empty.append(bench.buffer.is_empty)
        target = RecordTarget()
        bench.buffer.drain(10, target=target)
        bench.buffer.undo(target)
        is_empty.append(bench.buffer.is_empty)
        assert is_empty == [False, False, True, True, False, False]

    def test_what_was_handed_out_counts_as_held_no_longer(self) -> None:
        bench = Bench(T0, T1)
        for tp in (T0, T1):
            bench.put(tp, 0, batch(0, 2))
        bench.drain(2)
        assert bench.buffer.queues.bytes_buffered() == len(batch(0, 2))
        assert bench.buffer.queues.bytes_by_partition()[T0] == 0

    def test_fetch_dropped_by_an_interrupted_drain_is_fetched_again(self) -> None:
        """The fetcher may append just before the buffer puts the drained records back."""
        bench = Bench(T0)
        bench.put(T0, 0, batch(0, 2))
        put_back = bench.buffer.steps.put_back

        def appended_first(*args: Any) -> None:
            bench.put(T0, 2, batch(2, 2))
            put_back(*args)

        class Interrupted(RecordTarget):
            def deliver(self, tp: TopicPartition, taken: Any) -> None:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.buffer.steps, "put_back", appended_first)
            with pytest.raises(KeyboardInterrupt):
                bench.buffer._drain(Interrupted(), 100, None, True)
        assert bench.drain() == {}
        assert bench.position(T0) == 0
        [target] = bench.subscription.fetch_targets()
        assert target.offset == 0

    def test_only_the_partitions_asked_for(self) -> None:
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 2))
        bench.put(T1, 0, batch(0, 2))
        assert bench.drain(partitions=[T1]) == {T1: [0, 1]}
        assert bench.position(T0) == 0

    def test_the_position_passes_control_batches_without_records(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, marker(0, ControlType.COMMIT, 4))
        assert bench.drain() == {}
        assert bench.position(T0) == 1

    def test_a_seek_drops_what_was_fetched_before_it(self) -> None:
        bench = Bench(T0)
        lease = CountedLease()
        late = fetched(bench.subscription, T0, 5, batch(5, 5))
        bench.put(T0, 0, batch(0, 5), lease=lease)
        bench.drain(2)
        bench.subscription.seek(T0, 20)
        assert not bench.buffer.queues.append(late)
        bench.put(T0, 20, batch(20, 2))
        assert bench.drain() == {T0: [20, 21]}
        assert lease.released == 1
        assert bench.position(T0) == 22

    def test_revoked_partition_returns_nothing_and_frees_its_buffer(self) -> None:
        bench = Bench(T0, T1)
        lease = CountedLease()
        bench.put(T0, 0, batch(0, 5), lease=lease)
        bench.subscription.mark_pending_revocation([T0])
        assert bench.drain() == {}
        assert bench.position(T0) == 0
        bench.subscription.revoke([T0])
        assert bench.drain() == {}
        assert lease.released == 1

    def test_a_pause_keeps_the_buffer(self) -> None:
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 5))
        bench.put(T1, 0, batch(0, 2))
        bench.drain(2)
        bench.subscription.pause([T0])
        assert bench.drain() == {T1: [0, 1]}
        assert bench.drain() == {}
        bench.subscription.resume([T0])
        assert bench.drain() == {T0: [2, 3, 4]}

    def test_empty_response_updates_watermarks_and_buffers_nothing(self) -> None:
        bench = Bench(T0)
        lease = CountedLease()
        bench.put(T0, 0, lease=lease)
        assert bench.subscription.high_watermark(T0) == 1000
        assert bench.buffer.queues.bytes_buffered() == 0
        assert lease.released == 1

    def test_seeking_without_draining_does_not_pile_up_memory(self) -> None:
        bench = Bench(T0)
        for offset in range(50):
            bench.subscription.seek(T0, offset)
            bench.put(T0, offset, batch(offset, 1))
        assert bench.buffer.queues.bytes_buffered() == len(batch(49, 1))

    def test_closing_releases_everything(self) -> None:
        bench = Bench(T0)
        lease = CountedLease()
        bench.put(T0, 0, batch(0, 5), lease=lease)
        bench.buffer.close()
        assert lease.released == 1
        assert bench.drain() == {}


class TestRoom:
    def test_a_partition_has_a_share_of_two_fetches(self) -> None:
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 1))
        assert bench.with_room() == {T0, T1}
        bench.put(T0, 1, batch(1, 1))
        assert bench.with_room() == {T1}
        assert bench.rooms == 0
        bench.drain(1)
        assert bench.rooms == 1
        assert bench.with_room() == {T0, T1}

    def test_nobody_is_woken_who_does_not_wait(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, batch(0, 1))
        bench.drain()
        assert bench.rooms == 0

    def test_the_whole_is_bounded_but_every_partition_gets_one_fetch(self) -> None:
        bench = Bench(T0, T1, max_bytes=1)
        bench.put(T0, 0, batch(0, 1))
        assert bench.with_room() == {T1}

    def test_paused_partition_leaves_buffer_room_for_the_others(self) -> None:
        bench = Bench(T0, T1, max_bytes=len(batch(0, 50)) + 1)
        bench.put(T0, 0, batch(0, 50))
        bench.put(T1, 0, batch(0, 1))
        assert bench.with_room() == set()
        bench.subscription.pause([T0])
        assert bench.with_room() == {T1}

    def test_a_blocked_partition_is_not_fetched_further(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, broken(batch(0, 1)))
        with pytest.raises(CorruptBatchError):
            bench.drain()
        assert bench.with_room() == set()
        bench.subscription.seek(T0, 1)
        assert bench.with_room() == {T0}


def corrupt(bench: Bench, tp: TopicPartition) -> None:
    bench.put(tp, 0, batch(0, 2), broken(batch(2, 2)), batch(4, 2))


def undeserializable(bench: Bench, tp: TopicPartition) -> None:
    bench.put(tp, 0, batch(0, 6), deserialize=raising_at(2))


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(corrupt, CorruptBatchError), (undeserializable, RecordDeserializationError)],
    ids=["corrupt batch", "raising deserializer"],
)
class TestPoison:
    """Two defects of other clients: F1 spins forever, F4 drops drained records."""

    def test_records_drained_from_other_partitions_are_not_lost(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        """Other clients move the position of partition 0 and drop its records."""
        bench = Bench(T0, T1)
        bench.put(T0, 0, batch(0, 10))
        spoil(bench, T1)
        assert bench.drain() == {T0: list(range(10)), T1: [0, 1]}
        with pytest.raises(error):
            bench.drain()
        assert (bench.position(T0), bench.position(T1)) == (10, 2)

    def test_the_error_stands_and_every_drain_ends(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        """Other clients loop forever. Every drain here raises the same error and moves nothing."""
        bench = Bench(T0)
        spoil(bench, T0)
        assert bench.drain() == {T0: [0, 1]}
        messages = set()
        for _ in range(5):
            with pytest.raises(error) as raised:
                bench.drain()
            messages.add(str(raised.value))
            assert bench.position(T0) == 2
        assert len(messages) == 1
        assert bench.with_room() == set()

    def test_other_partitions_are_delivered_between_two_raises(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0, T1)
        spoil(bench, T1)
        bench.drain()
        for offset in range(0, 8, 2):
            bench.put(T0, offset, batch(offset, 2))
            with pytest.raises(error):
                bench.drain()
            assert bench.drain() == {T0: [offset, offset + 1]}

    def test_seeking_past_it_goes_on(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0)
        spoil(bench, T0)
        bench.drain()
        with pytest.raises(error) as raised:
            bench.drain()
        assert raised.value.topic_partition == T0
        bench.subscription.seek(T0, 4)
        assert bench.drain() == {}
        bench.put(T0, 4, batch(4, 2))
        assert bench.drain() == {T0: [4, 5]}
        assert bench.drain() == {}

    def test_a_pause_silences_it_and_a_resume_brings_it_back(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0, T1)
        bench.put(T1, 0, batch(0, 1))
        spoil(bench, T0)
        bench.drain()
        bench.subscription.pause([T0])
        assert bench.drain() == {}
        assert bench.drain() == {}
        bench.subscription.resume([T0])
        with pytest.raises(error):
            bench.drain()

    def test_error_is_raised_once_in_a_wait_and_again_at_its_end(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0, T1)
        spoil(bench, T0)
        bench.drain()
        with pytest.raises(error):
            bench.drain(repeat_errors=False)
        assert bench.drain(repeat_errors=False) == {}
        assert bench.drain(repeat_errors=False) == {}
        with pytest.raises(error):
            bench.drain(repeat_errors=True)

    def test_two_spoilt_partitions_are_told_in_turn(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0, T1)
        spoil(bench, T0)
        spoil(bench, T1)
        bench.drain()
        raised_for = []
        for _ in range(4):
            with pytest.raises(error) as raised:
                bench.drain()
            raised_for.append(raised.value.topic_partition)
        assert raised_for == [T0, T1, T0, T1]

    def test_the_traceback_does_not_grow_with_each_raise(
        self, spoil: Callable[[Bench, TopicPartition], None], error: type[DataError]
    ) -> None:
        bench = Bench(T0)
        spoil(bench, T0)
        bench.drain()
        depths = []
        for _ in range(4):
            with pytest.raises(error) as raised:
                bench.drain()
            depths.append(len(raised.traceback))
        assert len(set(depths[1:])) == 1


class TestErrors:
    def test_transient_error_is_raised_once_each_time_it_occurs(self) -> None:
        bench = Bench(T0)
        bench.fail(T0, TopicAuthorizationFailedError("no"), is_transient=True)
        with pytest.raises(TopicAuthorizationFailedError):
            bench.drain()
        assert bench.drain() == {}
        bench.fail(T0, TopicAuthorizationFailedError("no"), is_transient=True)
        with pytest.raises(TopicAuthorizationFailedError):
            bench.drain()

    def test_an_error_that_has_passed_is_not_raised(self) -> None:
        bench = Bench(T0)
        bench.fail(T0, TopicAuthorizationFailedError("no"), is_transient=True)
        assert bench.subscription.snapshot().partitions[T0].status.last_error is not None
        bench.put(T0, 0, batch(0, 2))
        assert bench.drain() == {T0: [0, 1]}
        assert bench.subscription.snapshot().partitions[T0].status.last_error is None
        assert bench.drain() == {}

    def test_an_error_comes_after_the_data_before_it(self) -> None:
        bench = Bench(T0, default_reset=OffsetReset.NONE)
        bench.put(T0, 0, batch(0, 2))
        bench.fail(T0, OffsetOutOfRangeError("2 is out of range"), is_transient=False)
        assert bench.drain(1) == {T0: [0]}
        assert bench.drain() == {T0: [1]}
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                bench.drain()
        assert bench.position(T0) == 2

    def test_out_of_range_is_reset_after_the_records_before_it(self) -> None:
        bench = Bench(T0, default_reset=OffsetReset.EARLIEST)
        bench.put(T0, 0, batch(0, 2))
        bench.fail(T0, OffsetOutOfRangeError("2 is out of range"), is_transient=False)
        assert bench.drain(1) == {T0: [0]}
        assert bench.subscription.pending_resets() == []
        assert bench.drain() == {T0: [1]}
        bench.drain()
        [pending] = bench.subscription.pending_resets()
        assert pending.strategy is OffsetReset.EARLIEST
        assert bench.rooms == 1
        assert bench.drain() == {}

    def test_reset_waits_for_drain_without_records_of_the_partition(self) -> None:
        bench = Bench(T0, default_reset=OffsetReset.EARLIEST)
        bench.put(T0, 0, batch(0, 2))
        bench.fail(T0, OffsetOutOfRangeError("2 is out of range"), is_transient=False)
        assert bench.drain() == {T0: [0, 1]}
        assert bench.position(T0) == 2, "iteration buffers the records and needs their position"
        bench.drain()
        assert bench.position(T0) is None

    def test_an_error_of_no_partition_is_raised_once(self) -> None:
        bench = Bench(T0)
        bench.put(T0, 0, batch(0, 2))
        bench.buffer.report(KafkaError("garbage"))
        with pytest.raises(KafkaError, match="garbage"):
            bench.drain()
        assert bench.drain() == {T0: [0, 1]}

    def test_an_error_of_a_partition_without_a_position_is_raised(self) -> None:
        bench = Bench(T0)
        bench.subscription.request_reset(T0)
        bench.fail(T0, TopicAuthorizationFailedError("no"), is_transient=False)
        with pytest.raises(TopicAuthorizationFailedError):
            bench.drain()


class TestInterrupts:
    def test_interrupt_while_decoding_loses_nothing_of_any_partition(self) -> None:
        bench = Bench(T0, T1)
        interrupted: list[int] = []

        def value(topic: str, headers: Any, data: bytes | None) -> Any:
            if data == b"3" and not interrupted:
                interrupted.append(1)
                raise KeyboardInterrupt
            return data

        bench.put(T0, 0, batch(0, 3))
        bench.put(T1, 0, batch(0, 5), deserialize=record_deserializer(None, value))
        with pytest.raises(KeyboardInterrupt):
            bench.drain()
        assert (bench.position(T0), bench.position(T1)) == (0, 0)
        assert bench.drain() == {T0: [0, 1, 2], T1: [0, 1, 2, 3, 4]}

    def test_an_interrupt_while_handing_out_loses_nothing(self) -> None:
        calls: list[int] = []

        def room() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt

        subscription = owning(T0)
        buffer = FetchBuffer(subscription, max_bytes=1, on_room=room)
        buffer.queues.append(fetched(subscription, T0, 0, batch(0, 3)))
        assert with_room(buffer, subscription) == []
        with pytest.raises(KeyboardInterrupt):
            buffer.drain(100)
        assert subscription.position(T0) == 0
        assert offsets(buffer.drain(100)[T0]) == [0, 1, 2]
        assert subscription.position(T0) == 3

    def test_interrupted_release_of_a_drained_fetch_is_repeated(self) -> None:
        class InterruptedLease(CountedLease):
            calls = 0

            def release(self) -> None:
                self.calls += 1
                if self.calls == 1:
                    raise KeyboardInterrupt
                super().release()

        bench, lease = Bench(T0), InterruptedLease()
        bench.put(T0, 0, batch(0, 3), lease=lease)
        with pytest.raises(KeyboardInterrupt):
            bench.drain()
        assert bench.drain() == {T0: [0, 1, 2]}
        assert lease.released == 0
        assert bench.drain() == {}
        assert (lease.released, lease.calls) == (1, 2)

    def test_a_partition_lost_while_it_is_decoded_is_not_delivered(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["t"])
        subscription.assign_from_group([T0, T1])
        for tp in (T0, T1):
            subscription.seek(tp, 0)

        def value(topic: str, headers: Any, data: bytes | None) -> Any:
            subscription.revoke([T0])
            return data

        buffer = FetchBuffer(subscription, max_bytes=1 << 20)
        deserialize = record_deserializer(None, value)
        buffer.queues.append(fetched(subscription, T0, 0, batch(0, 2), deserialize=deserialize))
        buffer.queues.append(fetched(subscription, T1, 0, batch(0, 2), deserialize=deserialize))
        assert {tp: offsets(found) for tp, found in buffer.drain(9).items()} == {T1: [0, 1]}
