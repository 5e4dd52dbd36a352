"""Corrupt batches: a CorruptBatchError with the place and the bytes."""

from __future__ import annotations

import random
import struct
import time

import pytest

from kohort.errors import CorruptBatchError, DecompressionBudgetError, UnsupportedCodecError
from kohort.records import (
    Compression,
    NewRecord,
    RecordBatch,
    crc32c,
    encode_batch,
    split_batches,
)
from tests.records._vectors import VECTORS

HEADER_SIZE = 61
PLAIN = encode_batch(
    [NewRecord(1000 + number, b"key%d" % number, b"value", [("h", b"x")]) for number in range(5)],
    base_offset=100,
)


def _changed(at: int, new: bytes, batch: bytes = PLAIN, *, mend_crc: bool = True) -> bytes:
    data = bytearray(batch)
    data[at : at + len(new)] = new
    if mend_crc:
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def _payload(payload: bytes, *, count: int = 1, attributes: int = 0) -> bytes:
    """Return a batch with a correct CRC around any payload."""
    data = bytearray(PLAIN[:HEADER_SIZE]) + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, attributes, max(count - 1, 0))
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def _read(data: bytes) -> int:
    count = 0
    for batch in split_batches(data):
        batch.check_crc()
        count += len(batch.records())
    return count


def _refused(data: bytes, error: type[CorruptBatchError] = CorruptBatchError) -> CorruptBatchError:
    with pytest.raises(error) as caught:
        _read(data)
    assert type(caught.value) is error
    assert caught.value.raw == data
    assert caught.value.topic_partition is None
    return caught.value


def test_a_wrong_crc_names_both_sums_and_the_place() -> None:
    error = _refused(_changed(80, b"\xff", mend_crc=False))
    assert "CRC" in str(error)
    assert (error.offset, error.next_offset) == (100, 105)


def test_the_next_offset_is_not_told_when_it_may_be_wrong() -> None:
    """A last offset that neither the CRC nor the count agrees with must not be followed."""
    error = _refused(_changed(23, struct.pack(">i", 1_000_000), mend_crc=False))
    assert (error.offset, error.next_offset) == (100, None)


def test_a_truncated_tail_is_no_error() -> None:
    data = PLAIN + PLAIN[:-1]
    split = split_batches(data)
    assert len(list(split)) == 1
    assert split.tail_size == len(PLAIN) - 1
    assert split.tail_needs == len(PLAIN)


@pytest.mark.parametrize("size", range(1, 17))
def test_a_tail_may_be_too_short_to_say_what_it_is(size: int) -> None:
    split = split_batches(PLAIN[:size])
    assert list(split) == []
    assert split.tail_size == size
    assert split.tail_needs == (len(PLAIN) if size >= 12 else None)


def test_there_is_no_tail_behind_whole_batches() -> None:
    for data in (b"", PLAIN, PLAIN * 3):
        split = split_batches(data)
        assert len(list(split)) == len(data) // len(PLAIN)
        assert (split.tail_size, split.tail_needs) == (0, None)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_refused(magic: int) -> None:
    error = _refused(_changed(16, bytes([magic])))
    assert f"magic {magic}" in str(error)
    assert (error.offset, error.next_offset) == (100, None)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_the_old_formats_is_named(magic: int) -> None:
    error = _refused(_changed(16, bytes([magic])))
    assert f"message of format {magic}" in str(error)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 1, 18, 48])
def test_an_impossible_batch_length_is_refused(length: int) -> None:
    error = _refused(_changed(8, struct.pack(">i", length)))
    assert (error.offset, error.next_offset) == (100, None)


def test_batches_before_a_broken_one_come_out_first() -> None:
    broken = _changed(16, b"\x7f")
    split = split_batches(PLAIN + broken + PLAIN)
    assert next(split).header.base_offset == 100
    with pytest.raises(CorruptBatchError) as caught:
        next(split)
    assert caught.value.raw == broken + PLAIN
    assert list(split) == []


@pytest.mark.parametrize(
    "offsets",
    [
        struct.pack(">q", -1),
        struct.pack(">q", 2**63 - 1),
    ],
)
def test_an_impossible_base_offset_is_refused(offsets: bytes) -> None:
    _refused(_changed(0, offsets))


def test_a_negative_last_offset_delta_is_refused() -> None:
    _refused(_changed(23, struct.pack(">i", -1)))


@pytest.mark.parametrize("count", [-1, -(2**31), 0, 1, 4, 6, 1000, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    error = _refused(_changed(57, struct.pack(">i", count)))
    assert (error.offset, error.next_offset) == (100, 105)


def test_a_batch_shorter_than_its_header_is_refused() -> None:
    _refused(_changed(8, struct.pack(">i", 18))[:30])


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD, 2])
def test_a_codec_flag_on_plain_records_is_refused(codec: int) -> None:
    pytest.importorskip("cramjam")
    error = _refused(_changed(21, struct.pack(">h", codec)))
    assert error.next_offset == 105


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused_by_its_number(codec: int) -> None:
    error = _refused(_changed(21, struct.pack(">h", codec)), UnsupportedCodecError)
    assert f"cannot be read here: compression codec {codec} is unknown" in str(error)
    with pytest.raises(UnsupportedCodecError):
        _ = RecordBatch.of(_changed(21, struct.pack(">h", codec))).header.compression


def test_batch_over_budget_is_refused_and_readable_with_more() -> None:
    data = encode_batch([NewRecord(0, b"k", bytes(100_000))], compression=Compression.ZSTD)
    batch = RecordBatch.of(data)
    with pytest.raises(DecompressionBudgetError) as caught:
        batch.records(budget=50_000)
    assert caught.value.next_offset == 1
    assert len(batch.records(budget=200_000)) == 1


RECORD = b"\x12\x00\x00\x00\x02k\x04vw\x00"


def test_the_hand_made_record_is_right() -> None:
    [record] = RecordBatch.of(_payload(RECORD)).records()
    assert (record.key, record.value, record.headers) == (b"k", b"vw", ())


@pytest.mark.parametrize(
    ("what", "record"),
    [
        ("length one more", b"\x14" + RECORD[1:]),
        ("length one less", b"\x10" + RECORD[1:]),
        ("length zero", b"\x00" + RECORD[1:]),
        ("length negative", b"\x13" + RECORD[1:]),
        ("length huge", b"\xfe\xff\xff\xff\x0f" + RECORD[1:]),
        ("length of six bytes", b"\x92\x80\x80\x80\x80\x00" + RECORD[1:]),
        ("length of 35 bits", b"\x92\x80\x80\x80\x7f" + RECORD[1:]),
        ("length unfinished", b"\xff"),
        ("key longer than the record", b"\x12\x00\x00\x00\x7ek\x04vw\x00"),
        ("key longer than the batch", b"\x12\x00\x00\x00\xfe\x7f\x04vw\x00"),
        ("key of length -2", b"\x12\x00\x00\x00\x03k\x04vw\x00"),
        ("value longer than the record", b"\x12\x00\x00\x00\x02k\x7evw\x00"),
        ("value of length -2", b"\x12\x00\x00\x00\x02k\x03vw\x00"),
        ("headers negative", b"\x12\x00\x00\x00\x02k\x04vw\x01"),
        ("headers more than fit", b"\x12\x00\x00\x00\x02k\x04vw\x7e"),
        ("header count of 2**31", b"\x1a\x00\x00\x00\x02k\x04vw\xfe\xff\xff\xff\x0f"),
        ("header name too long", b"\x18\x00\x00\x00\x02k\x04vw\x02\x7eh\x00"),
        ("header name null", b"\x16\x00\x00\x00\x02k\x04vw\x02\x01\x01"),
        ("header value too long", b"\x18\x00\x00\x00\x02k\x04vw\x02\x02h\x7e"),
        ("header value of length -2", b"\x18\x00\x00\x00\x02k\x04vw\x02\x02h\x03"),
        ("offset delta negative", b"\x12\x00\x00\x01\x02k\x04vw\x00"),
        ("offset delta behind the last", b"\x12\x00\x00\x04\x02k\x04vw\x00"),
        ("offset delta of 33 bits", b"\x1a\x00\x00\x80\x80\x80\x80\x10\x02k\x04vw\x00"),
        ("timestamp delta of 11 bytes", b"\x26\x00" + b"\x80" * 10 + b"\x00\x00\x02k\x04vw\x00"),
        ("timestamp delta of 70 bits", b"\x24\x00" + b"\xff" * 9 + b"\x7f\x00\x02k\x04vw\x00"),
        ("bytes behind the last record", RECORD + b"\x00"),
        ("nothing at all", b""),
    ],
)
def test_a_record_that_lies_is_refused(what: str, record: bytes) -> None:
    _refused(_payload(record))


def test_offsets_that_do_not_rise_are_refused() -> None:
    again = RECORD + RECORD
    assert "offset" in str(_refused(_payload(again, count=2)))


def test_a_header_name_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    [record] = RecordBatch.of(_payload(b"\x1a\x00\x00\x00\x02k\x04vw\x02\x04\xffh\x01")).records()
    assert record.headers == (("\ufffdh", None),)
    assert record.serialized_header_size == 2


def test_extreme_timestamps_are_read() -> None:
    times = [0, -1, 5, 2**62, 2**63 - 1, -(2**63), -(2**61), 10**12, 2**63 - 2, 1 - 2**63]
    for first in times:
        data = encode_batch([NewRecord(first), *map(NewRecord, times)])
        assert [record.timestamp for record in RecordBatch.of(data).records()] == [first, *times]


def test_something_else_than_one_batch_is_not_a_batch() -> None:
    for data in (b"", PLAIN * 2, PLAIN[:-1], PLAIN + b"\x00"):
        with pytest.raises(CorruptBatchError, match="not exactly one"):
            RecordBatch.of(data)


def _seeds() -> list[bytes]:
    many = [
        NewRecord(
            10**12 + number,
            b"key-%d" % number,
            b"v" * (number * 7 % 300),
            [("h", b"x" * number), ("n", None)][: number % 3],
        )
        for number in range(150)
    ]
    return [sample.raw for sample in VECTORS] + [
        encode_batch(many, compression=codec) for codec in Compression
    ]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_batches_raise_nothing_else_and_take_no_time(seed: int) -> None:
    rng = random.Random(seed)
    seeds = _seeds()
    refused = 0
    for _ in range(2500):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(rng.choice((len(data), min(len(data), 80))))
            match rng.randrange(5):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    del data[at : at + rng.randrange(1, 20)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randrange(1, 20))
                case 4:
                    data[at : at + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
            data = data or bytearray(1)
        if rng.random() < 0.7 and len(data) > 16:  # lets most pass the framing
            struct.pack_into(">i", data, 8, len(data) - 12)
            data[16] = 2
        started = time.thread_time()
        try:
            for batch in split_batches(data):
                batch.records(budget=1 << 20)
        except CorruptBatchError as error:
            refused += 1
            assert error.offset is not None
            assert error.raw is not None and len(error.raw) <= len(data)
        assert time.thread_time() - started < 1
    assert refused > 500
