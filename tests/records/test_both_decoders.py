"""The compiled decoder and the plain one: the same records, or the same error."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError
from kohort.records import NewRecord, RecordSet, encode_batch
from tests.records.batches import BATCHES, encoded
from tests.support.decoders import NAMES, use_decoder


def _read(name: str, data: bytes, offset: int = 0, *, check_crcs: bool = True) -> list[Any]:
    """Return the records, and after them the error."""
    with pytest.MonkeyPatch.context() as patch:
        use_decoder(name, patch)
        found = RecordSet(data, offset, topic="t", partition=3, check_crcs=check_crcs)
        scan = found.scan
        out: list[Any] = [(scan.batches, scan.size, found.next_offset, scan.leader_epoch)]
        try:
            while not found.done:
                found.read(5)
                out += [(record, record.__reduce__()) for record in found.records]
                out.append(found.passed)
        except CorruptBatchError as error:
            out.append((type(error), str(error), error.offset, error.next_offset, error.raw))
        out.append((scan.tail_size, scan.tail_needs))
    return out


def _same(data: bytes, offset: int = 0, *, check_crcs: bool = True) -> list[Any]:
    pure, compiled = (_read(name, data, offset, check_crcs=check_crcs) for name in NAMES)
    assert pure == compiled
    return pure


@settings(deadline=None)
@given(BATCHES, st.integers(0, 20))
def test_whatever_was_written_comes_out_alike(batches: Any, offset: int) -> None:
    _same(encoded(batches), offset)


@settings(deadline=None)
@given(BATCHES, st.data())
def test_whatever_was_broken_fails_alike(batches: Any, draw: st.DataObject) -> None:
    data = bytearray(encoded(batches))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(data)))
    _same(bytes(data[:cut]), check_crcs=draw.draw(st.booleans()))


def test_random_bytes_in_place_of_records_fail_alike() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        records = rng.randbytes(rng.randrange(60))
        batch = bytearray(encode_batch([NewRecord(1, None, records)]))
        batch[61:] = rng.randbytes(len(batch) - 61) if rng.random() < 0.5 else records
        batch[8:12] = (len(batch) - 12).to_bytes(4)
        batch[57:61] = rng.choice((0, 1, 2, 9)).to_bytes(4)
        batch[23:27] = rng.choice((0, 1, 50)).to_bytes(4)
        _same(bytes(batch), check_crcs=False)


@pytest.mark.parametrize("size", [*range(2980, 3100, 7), 6_100, 9_170, 12_250, 100_003])
def test_checksums_of_batches_of_any_length_are_computed_alike(size: int) -> None:
    """The compiled code computes it in blocks of 3 KiB, in words, and in single bytes."""
    data = encode_batch([NewRecord(1, None, bytes(n % 251 for n in range(size)))])
    assert _same(data)[1][0].serialized_value_size == size
    spoilt = bytearray(data)
    spoilt[-1 - size // 2] ^= 1
    assert _same(bytes(spoilt))[1][0] is CorruptBatchError
