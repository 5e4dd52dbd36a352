"""The compiled decoder and the plain one give the same records, or the same error."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError
from kohort.records import Compression, NewRecord, RecordSet, _set, _split, encode_batch
from tests.support.decoders import NAMES, decoder_named

DATA = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3)
RECORDS = st.lists(
    st.builds(NewRecord, st.integers(-(1 << 62), 1 << 62), DATA, DATA, HEADERS), max_size=8
)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(Compression), st.booleans()), min_size=1, max_size=4
)


def _encoded(batches: Any) -> bytes:
    data = b""
    offset = 0
    for records, codec, transactional in batches:
        data += encode_batch(
            records,
            base_offset=offset,
            compression=codec,
            last_offset_delta=len(records),
            producer_id=7 if transactional else -1,
            producer_epoch=0 if transactional else -1,
            transactional=transactional,
        )
        offset += len(records) + 1
    return data


def _read(name: str, data: bytes, offset: int = 0, *, check_crcs: bool = True) -> list[Any]:
    """All that comes out: records, and at the end what went wrong."""
    module = decoder_named(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_split, "decode_records", module.decode_records)
        patch.setattr(_set, "read_plain", module.read_plain)
        patch.setattr(_set, "scan", module.scan)
        found = RecordSet(data, offset, topic="t", partition=3, check_crcs=check_crcs)
        out: list[Any] = [(found.batches, found.size, found.next_offset, found.leader_epoch)]
        try:
            while not found.done:
                found.read(5)
                out += [(record, record.__reduce__()) for record in found.records]
                out.append(found.passed)
        except CorruptBatchError as error:
            out.append((type(error), str(error), error.offset, error.next_offset, error.raw))
        out.append((found.tail_size, found.tail_needs))
    return out


def _same(data: bytes, offset: int = 0, *, check_crcs: bool = True) -> list[Any]:
    pure, compiled = (_read(name, data, offset, check_crcs=check_crcs) for name in NAMES)
    assert pure == compiled
    return pure


@settings(deadline=None)
@given(BATCHES, st.integers(0, 20))
def test_whatever_was_written_comes_out_alike(batches: Any, offset: int) -> None:
    _same(_encoded(batches), offset)


@settings(deadline=None)
@given(BATCHES, st.data())
def test_whatever_was_broken_fails_alike(batches: Any, draw: st.DataObject) -> None:
    data = bytearray(_encoded(batches))
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
