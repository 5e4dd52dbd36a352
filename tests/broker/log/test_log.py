"""The partition log: offsets, slices, times, epochs, idempotent producers."""

from __future__ import annotations

import pytest

from kohort.broker.log import AppendError, Marker, PartitionLog
from kohort.broker.log._epochs import EpochCache
from kohort.errors import ErrorCode
from kohort.protocol import Buffer
from kohort.records import Compression, NewRecord, RecordBatch, encode_batch, split_batches


def batch(count: int = 1, *, timestamp: int = 1000, size: int = 10, **options: int) -> RecordBatch:
    records = [NewRecord(timestamp + n, None, b"x" * size) for n in range(count)]
    return RecordBatch.of(encode_batch(records, **options))  # type: ignore[arg-type]


def filled(*counts: int, **options: int) -> PartitionLog:
    log = PartitionLog()
    for count in counts:
        log.append(batch(count, **options), 0, None)
    return log


def offsets(data: Buffer) -> list[int]:
    return [record.offset for b in split_batches(data) for record in b.records()]


def test_batches_get_their_offsets_and_the_leaders_epoch() -> None:
    log = PartitionLog()
    assert log.append(batch(3), 7, None).base_offset == 0
    assert log.append(batch(2), 8, None).base_offset == 3
    assert log.end_offset == log.high_watermark == 5
    stored = list(log.batches())
    assert [(b.header.base_offset, b.header.partition_leader_epoch) for b in stored] == [
        (0, 7),
        (3, 8),
    ]
    for one in stored:
        one.check_crc()


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log = filled(3, 3, 3)
    assert offsets(log.read(4, 1 << 20, at_least_one=True)) == [3, 4, 5, 6, 7, 8]
    assert len(log.read(9, 1 << 20, at_least_one=True)) == 0


def test_a_read_is_cut_at_the_limit_but_never_in_its_first_batch() -> None:
    log = filled(1, 1, 1)
    size = len(log.read(0, 1 << 20, at_least_one=False)) // 3
    assert offsets(log.read(0, 2 * size, at_least_one=False)) == [0, 1]
    assert offsets(log.read(0, 2 * size - 1, at_least_one=False)) == [0]
    assert len(log.read(0, 2 * size - 1, at_least_one=False)) == 2 * size - 1
    assert offsets(log.read(0, 1, at_least_one=False)) == []
    assert len(log.read(0, 0, at_least_one=False)) == 0
    assert len(log.read(0, 1, at_least_one=True)) == size
    assert offsets(log.read(0, 1, at_least_one=True)) == [0]


def test_a_long_log_is_read_on_through_its_segments() -> None:
    log = filled(*[1] * 500, size=1000)
    position, seen = 0, []
    while position < log.end_offset:
        got = offsets(log.read(position, 100_000, at_least_one=True))
        seen += got
        position = got[-1] + 1
    assert seen == list(range(500))
    assert log.available_bytes(0, 1 << 30) == log.size
    assert log.available_bytes(499, 1 << 30) == len(log.read(499, 1, at_least_one=True))
    assert log.available_bytes(0, 5) == 5


def test_large_read_is_a_view_that_ends_with_its_segment() -> None:
    log = filled(*[1] * 30, size=1_000_000)
    position, buffers = 0, []
    while position < log.end_offset:
        got = log.read(position, 8 << 20, at_least_one=True)
        if position > 10:
            assert isinstance(got, memoryview)
            buffers.append(got.obj)
        position = offsets(got)[-1] + 1
    assert len(buffers) > len({id(buffer) for buffer in buffers}) > 1


def test_what_was_read_stays_what_it_was() -> None:
    log = filled(1)
    before = log.read(0, 1 << 20, at_least_one=True)
    copy = bytes(before)
    for _ in range(1000):
        log.append(batch(1, size=1000), 0, None)
    assert bytes(before) == copy


def test_the_log_starts_later_when_records_are_deleted() -> None:
    log = filled(*[10] * 100, size=1000)
    log.advance_start(555)
    assert log.start_offset == 555
    assert offsets(log.read(555, 1, at_least_one=True))[0] == 550
    assert next(log.batches()).header.base_offset == 550
    log.advance_start(10)
    assert log.start_offset == 555, "the start never moves back"
    log.advance_start(5000)
    assert log.start_offset == log.end_offset == 1000


def test_log_append_time_replaces_the_producers_timestamp() -> None:
    log = PartitionLog()
    assert log.append(batch(2), 0, 5_000).timestamp == 5_000
    (stored,) = log.batches()
    stored.check_crc()
    assert [(r.timestamp, r.timestamp_type) for r in stored.records()] == [(5_000, 1)] * 2


def test_offsets_are_found_by_time() -> None:
    log = PartitionLog()
    for timestamp in (100, 300, 200, 400):
        log.append(batch(3, timestamp=timestamp), 0, None)

    def found(timestamp: int) -> tuple[int, int] | None:
        answer = log.offset_for_time(timestamp)
        return None if answer is None else (answer.offset, answer.timestamp)

    assert found(0) == (0, 100)
    assert found(102) == (2, 102)
    assert found(103) == (3, 300), "the next one, in order of offsets"
    assert found(303) == (9, 400)
    assert found(403) is None
    log.advance_start(4)
    assert found(0) == (4, 301)


def test_the_largest_timestamp_is_that_of_its_first_record() -> None:
    log = PartitionLog()
    for timestamp in (100, 300, 200, 300):
        log.append(batch(1, timestamp=timestamp), 0, None)
    answer = log.max_timestamp()
    assert answer is not None
    assert (answer.offset, answer.timestamp) == (1, 300)
    log.advance_start(2)
    assert (answer := log.max_timestamp()) is not None
    assert answer.offset == 3
    assert PartitionLog().max_timestamp() is None


@pytest.mark.parametrize("codec", Compression)
def test_times_are_found_in_compressed_batches(codec: Compression) -> None:
    log = filled(5, compression=codec)
    answer = log.offset_for_time(1003)
    assert answer is not None
    assert answer.offset == 3


def idempotent(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9) -> RecordBatch:
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def refusal(log: PartitionLog, new: RecordBatch) -> ErrorCode:
    with pytest.raises(AppendError) as caught:
        log.append(new, 0, None)
    return caught.value.code


def test_a_batch_that_is_sent_again_is_not_appended_again() -> None:
    log = PartitionLog()
    for sequence in range(5):
        log.append(idempotent(sequence), 0, None)
    for sequence in range(5):
        assert log.append(idempotent(sequence), 0, None).base_offset == sequence
    assert log.end_offset == 5


def test_only_the_last_five_batches_are_remembered() -> None:
    log = PartitionLog()
    for sequence in range(6):
        log.append(idempotent(sequence), 0, None)
    assert refusal(log, idempotent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused() -> None:
    log = PartitionLog()
    log.append(idempotent(0, 3), 0, None)
    assert refusal(log, idempotent(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, idempotent(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(idempotent(3), 0, None)


def test_a_new_epoch_starts_at_0_and_ends_the_old_one() -> None:
    log = PartitionLog()
    log.append(idempotent(0), 0, None)
    assert refusal(log, idempotent(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(idempotent(0, epoch=1), 0, None)
    assert refusal(log, idempotent(1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    log = PartitionLog()
    log.append(idempotent(7), 0, None)
    log.append(idempotent(0, producer=10), 0, None)
    assert log.end_offset == 2


def test_sequences_go_round() -> None:
    log = PartitionLog()
    log.append(idempotent((1 << 31) - 2, 3), 0, None)
    log.append(idempotent(1), 0, None)
    assert log.end_offset == 4


def test_the_end_of_an_epoch_is_the_start_of_the_next_one() -> None:
    epochs = EpochCache()
    assert epochs.end_offset(0, 10) == (-1, -1)
    for epoch, start in ((0, 0), (2, 5), (3, 8), (4, 8)):
        epochs.assign(epoch, start)
    assert epochs.end_offset(0, 10) == (0, 5)
    assert epochs.end_offset(1, 10) == (0, 5), "the largest that is not over it"
    assert epochs.end_offset(2, 10) == (2, 8)
    assert epochs.end_offset(3, 10) == (2, 8), "nothing was written in it"
    assert epochs.end_offset(4, 10) == (4, 10)
    assert epochs.end_offset(5, 10) == (-1, -1)
    assert epochs.end_offset(-1, 10) == (-1, -1)
    assert [epochs.epoch_of(offset) for offset in (0, 4, 5, 8)] == [0, 0, 2, 4]


def test_truncated_log_reverts_the_state_of_its_transactions() -> None:
    log = PartitionLog()
    open_since = NewRecord(1, None, b"x")

    def write(producer_id: int) -> None:
        data = encode_batch(
            [open_since],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log.append(RecordBatch.of(data), 0, None)

    write(1)
    log.append_marker(Marker(1, 0, committed=False, coordinator_epoch=3), 0, 1)
    write(2)
    log.append_marker(Marker(2, 0, committed=False, coordinator_epoch=3), 0, 1)
    assert [aborted.producer_id for aborted in log.aborted_from(0)] == [1, 2]
    assert log.last_stable_offset == 4
    log.truncate(3)
    assert [aborted.producer_id for aborted in log.aborted_from(0)] == [1]
    assert (log.end_offset, log.last_stable_offset) == (3, 2), "the transaction is open again"
    log.truncate(1)
    assert log.last_stable_offset == 0
    states = dict(log.producers.items())
    assert list(states) == [1]
    assert states[1].last_sequence == 0
    log.truncate(0)
    assert (log.end_offset, log.size, list(log.batches())) == (0, 0, [])
