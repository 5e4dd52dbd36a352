"""The memory for decompressed batches: reused, and freed if it is large."""

from __future__ import annotations

import random

import pytest

from kohort.errors import CorruptBatchError, DecompressionBudgetError
from kohort.records import (
    Compression,
    NewRecord,
    RecordSet,
    Scratch,
    TablePlan,
    compress,
    decompress_into,
    encode_batch,
)

MB = 1024 * 1024
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"line %d of something that repeats itself\n" % number for number in range(5000))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_one_size_use_the_same_memory(codec: Compression) -> None:
    scratch = Scratch()
    packed = compress(codec, TEXT)
    first = decompress_into(codec, packed, scratch)
    assert first == TEXT
    assert first.obj is decompress_into(codec, packed, scratch).obj
    assert scratch.size < 2 * len(TEXT) + 128 * 1024


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_batch_left_is_not_in_the_next(codec: Compression) -> None:
    scratch = Scratch()
    rng = random.Random(codec)
    for _ in range(60):
        plain = rng.randbytes(rng.randrange(50)) * rng.randrange(3000)
        packed = compress(codec, plain)
        assert decompress_into(codec, packed, scratch) == plain
        with pytest.raises(CorruptBatchError):
            decompress_into(codec, packed[:-2], scratch)


@pytest.mark.parametrize("codec", CODECS)
def test_a_rare_large_batch_is_not_kept(codec: Compression) -> None:
    scratch = Scratch()
    large = compress(codec, bytes(20 * MB))
    small = compress(codec, TEXT)
    decompress_into(codec, small, scratch)
    assert decompress_into(codec, large, scratch) == bytes(20 * MB)
    assert scratch.size <= 4 * MB
    assert decompress_into(codec, small, scratch) == TEXT
    assert scratch.size <= 4 * MB


@pytest.mark.parametrize("codec", CODECS)
def test_memory_for_large_batches_is_kept_while_they_go_on(codec: Compression) -> None:
    scratch = Scratch()
    large = compress(codec, bytes(20 * MB))
    decompress_into(codec, large, scratch)
    kept = decompress_into(codec, large, scratch).obj
    assert scratch.size >= 20 * MB
    small = compress(codec, TEXT)
    for _ in range(8):
        decompress_into(codec, small, scratch)
    assert decompress_into(codec, large, scratch).obj is kept
    for _ in range(17):
        decompress_into(codec, small, scratch)
    assert scratch.size <= 4 * MB


def test_buffer_grows_when_an_earlier_result_is_in_use() -> None:
    scratch = Scratch()
    packed = [compress(Compression.GZIP, bytes([n]) * (n * 6 * MB)) for n in (1, 2, 3)]
    decompress_into(Compression.GZIP, packed[0], scratch)
    in_use = decompress_into(Compression.GZIP, packed[1], scratch)
    scratch.ratio = 0.0  # so that the size in the frame is not believed, and the buffer grows
    third = decompress_into(Compression.GZIP, packed[2], scratch)
    assert third.obj is not in_use.obj
    assert third == bytes([3]) * (18 * MB)
    assert scratch.size == 18 * MB


def test_buffer_grows_in_place_when_no_result_is_in_use() -> None:
    scratch = Scratch()
    packed = [compress(Compression.GZIP, bytes([n]) * (n * 6 * MB)) for n in (1, 2, 3)]
    decompress_into(Compression.GZIP, packed[0], scratch)
    kept = decompress_into(Compression.GZIP, packed[1], scratch).obj
    scratch.ratio = 0.0
    third = decompress_into(Compression.GZIP, packed[2], scratch)
    assert third.obj is kept
    assert third == bytes([3]) * (18 * MB)


def test_released_memory_is_taken_anew() -> None:
    scratch = Scratch()
    packed = compress(Compression.ZSTD, TEXT)
    decompress_into(Compression.ZSTD, packed, scratch)
    scratch.release()
    assert scratch.size == 0
    assert decompress_into(Compression.ZSTD, packed, scratch) == TEXT


def test_what_is_not_compressed_is_not_copied() -> None:
    data = bytearray(b"plain")
    assert decompress_into(Compression.NONE, data, Scratch()).obj is data
    with pytest.raises(DecompressionBudgetError):
        decompress_into(Compression.NONE, data, Scratch(), 4)


def test_after_an_error_the_memory_is_used_on() -> None:
    scratch = Scratch()
    packed = compress(Compression.GZIP, TEXT)
    for _ in range(3):
        with pytest.raises(DecompressionBudgetError):
            decompress_into(Compression.GZIP, packed, scratch, len(TEXT) - 1)
        assert decompress_into(Compression.GZIP, packed, scratch, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_a_table_of_several_batches_has_the_bytes_of_each(codec: Compression) -> None:
    values = [b"value %d" % number for number in range(30)]
    data = b"".join(
        encode_batch(
            [NewRecord(1, None, value) for value in values[first : first + 10]],
            base_offset=first,
            compression=codec,
        )
        for first in (0, 10, 20)
    )
    plan = TablePlan()
    assert RecordSet(data, scratch=Scratch()).add_rows_to(plan) == 30
    table = plan.build()
    assert bytes(table.buffers["value"]) == b"".join(values)
