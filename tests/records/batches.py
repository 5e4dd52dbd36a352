"""Batches of random records, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kohort.records import Compression, NewRecord, encode_batch

DATA = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3)
RECORDS = st.lists(
    st.builds(NewRecord, st.integers(-(1 << 62), 1 << 62), DATA, DATA, HEADERS), max_size=8
)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(Compression), st.booleans()), min_size=1, max_size=4
)


def encoded(batches: Any) -> bytes:
    """Return these batches in order, with a gap of one offset after each."""
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
