"""The records that one fetch returned for one partition, and the progress of reading them."""

from __future__ import annotations

import gc
import pickle
from types import ModuleType
from typing import Any

import pytest

from kohort.errors import CorruptBatchError
from kohort.records import Compression, NewRecord, RecordSet, encode_batch


def batch(first: int, count: int, **options: Any) -> bytes:
    records = [NewRecord(1000 + n, b"k%d" % n, b"v") for n in range(first, first + count)]
    return encode_batch(records, base_offset=first, leader_epoch=2, **options)


def read(found: RecordSet, enough: int) -> list[int]:
    found.read(enough)
    return [record.offset for record in found.records]


def test_tiny_batches_are_read_many_at_a_time() -> None:
    found = RecordSet(b"".join(batch(n, 2) for n in range(0, 20, 2)))
    assert (found.scan.batches, found.next_offset, found.scan.leader_epoch) == (10, 20, 2)
    assert read(found, 5) == [0, 1, 2, 3, 4, 5]
    assert found.passed == 6
    assert read(found, 1000) == list(range(6, 20))
    assert found.done
    assert found.passed == 20


def test_plain_and_compressed_batches_come_in_order() -> None:
    parts = [batch(0, 2), batch(2, 2, compression=Compression.LZ4), batch(4, 1), batch(5, 1)]
    found = RecordSet(b"".join(parts), 1)
    assert read(found, 100) == [1, 2, 3, 4, 5]


def test_what_comes_before_a_corrupt_batch_is_read_first() -> None:
    bad = bytearray(batch(4, 2))
    bad[-1] ^= 1
    found = RecordSet(batch(0, 2) + batch(2, 2, compression=Compression.GZIP) + bytes(bad))
    assert read(found, 100) == [0, 1, 2, 3]
    assert not found.done
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as caught:
            found.read(100)
        assert (caught.value.offset, caught.value.raw) == (4, bytes(bad))
    assert found.passed == 4


def test_a_batch_that_was_cut_off_is_told_of() -> None:
    whole, half = batch(0, 2), batch(2, 2)[:-3]
    found = RecordSet(whole + half)
    assert (found.scan.tail_size, found.scan.tail_needs) == (len(half), len(half) + 3)
    assert read(found, 100) == [0, 1]
    assert found.done


def test_records_do_not_refer_to_the_bytes_they_were_read_from(decoder: ModuleType) -> None:
    data = bytearray(batch(0, 3))
    found = RecordSet(data)
    found.read(100)
    found.release()
    before = pickle.dumps(found.records)
    data[:] = bytes(len(data))
    data += b"more"  # raises BufferError if something still refers to it
    assert pickle.dumps(found.records) == before


def test_compiled_records_are_not_tracked_by_garbage_collector(decoder: ModuleType) -> None:
    found = RecordSet(batch(0, 3))
    found.read(100)
    tracked = [gc.is_tracked(record) for record in found.records]
    assert tracked == [decoder.__name__.endswith("_record_decoder")] * 3
