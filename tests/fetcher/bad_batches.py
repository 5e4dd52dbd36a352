"""Table of bad bytes in a partition, with the behaviour that follows from each.

``python -m tests.fetcher.bad_batches docs/poison.md`` writes the table of that page.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.errors import (
    CorruptBatchError,
    DataError,
    DecompressionBudgetError,
    RecordDeserializationError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kohort.records import Compression, NewRecord, compress, crc32c, encode_batch
from tests.fetcher.making import batch, broken

LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, COUNT, RECORDS = 8, 16, 21, 23, 57, 61
GOOD = batch(2, 2)
"""The batch that is made bad: the one with the offsets 2 and 3."""

BEGIN = "<!-- table: python -m tests.fetcher.bad_batches docs/poison.md -->"
END = "<!-- end of table -->"


def changed(at: int, layout: str, *values: Any, data: bytes = GOOD) -> bytes:
    """Return the batch with other values at one place, and a correct CRC."""
    spoilt = bytearray(data)
    struct.pack_into(layout, spoilt, at, *values)
    struct.pack_into(">I", spoilt, 17, crc32c(memoryview(spoilt)[ATTRIBUTES:]))
    return bytes(spoilt)


def poison(data: bytes) -> bytes:
    """Return the value. Raise for the record at offset 2."""
    if data == b"2":
        raise LookupError(data)
    return data


@dataclass(frozen=True)
class Row:
    """One kind of bad input. ``raises`` is None if the input is valid."""

    name: str
    data: tuple[bytes, ...]
    raises: type[DataError] | None = CorruptBatchError
    skip: str = "passes the batch"
    end_known: bool = True
    options: dict[str, Any] = field(default_factory=dict)


def _bomb() -> bytes:
    """Return a batch of 64 KB that decompresses to 64 MB."""
    records = [NewRecord(1000 + n, b"k", bytes(32 << 20)) for n in range(2)]
    return encode_batch(records, base_offset=2, compression=Compression.GZIP, leader_epoch=3)


def _old(magic: int) -> bytes:
    """Return a compressed message of an old format, without a CRC.

    Its offset is that of the last message inside.
    """
    value = compress(Compression.GZIP, b"not looked at")
    body = bytes([magic, Compression.GZIP]) + bytes(8 * magic)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 3, len(body) + 4, 0) + body


STEPS = "requests the next offset"

ROWS = (
    Row("a wrong CRC", (broken(GOOD),)),
    Row("a wrong CRC of a message of format 0 or 1", (_old(0), _old(1))),
    Row(
        "an unknown magic (3, 127)",
        tuple(changed(MAGIC, ">b", magic) for magic in (3, 127)),
        skip=STEPS,
        end_known=False,
    ),
    Row(
        "a negative or impossible batch length",
        tuple(changed(LENGTH, ">i", length) for length in (-1, -(2**31), 0, 48)),
        skip=STEPS,
        end_known=False,
    ),
    Row(
        "a batch shorter than its header",
        (changed(LENGTH, ">i", 18)[:30],),
        skip=STEPS,
        end_known=False,
    ),
    Row(
        "a record count that is too large, too small or negative",
        tuple(changed(COUNT, ">i", count) for count in (3, 2**31 - 1, 1, 0, -1)),
    ),
    Row(
        "a last offset before the first",
        (changed(LAST_DELTA, ">i", -1),),
        skip=STEPS,
        end_known=False,
    ),
    Row(
        "a wrong length of a record",
        tuple(changed(RECORDS, ">B", size) for size in (0, 1, 0x7E, GOOD[RECORDS] + 2)),
    ),
    Row(
        "a wrong length of a key or value",
        tuple(changed(RECORDS + 4, ">B", size) for size in (0x03, 0x7E)),
    ),
    Row(
        "a codec flag on plain records",
        tuple(changed(ATTRIBUTES, ">h", codec) for codec in (1, 2, 3, 4)),
    ),
    Row("an unknown codec (7)", (changed(ATTRIBUTES, ">h", 7),), UnsupportedCodecError),
    Row(
        "a compression bomb",
        (_bomb(),),
        DecompressionBudgetError,
        options={"decompression_max_bytes": 1 << 20},
    ),
    Row(
        "a deserializer that raises",
        (GOOD,),
        RecordDeserializationError,
        skip="passes the record",
        options={"value_deserializer": lambda topic, headers, data: poison(data)},
    ),
    Row(
        "a batch cut off at the end of a response",
        (),
        None,
        skip="valid: the consumer fetches the rest",
    ),
    Row(
        "a batch larger than max_partition_fetch_bytes",
        (),
        None,
        skip="valid: the broker returns all of it",
    ),
    Row(
        "a batch length larger than any response",
        (changed(LENGTH, ">i", 2**31 - 1),),
        RecordTooLargeError,
        skip="raises the error, because its end is unknown",
    ),
    Row("a transaction that is aborted twice", (), None, skip="valid: the same as once"),
)


def table() -> str:
    """Return the rows as Markdown."""
    return "\n".join([BEGIN, "", *_lines(), "", END])


def _lines() -> Iterator[str]:
    yield '| fault | error | `"skip"` | `"pause"` |'
    yield "| --- | --- | --- | --- |"
    for row in ROWS:
        raised = "nothing" if row.raises is None else f"`{row.raises.__name__}`"
        paused = "" if row.raises is None else "pauses before it"
        yield f"| {row.name} | {raised} | {row.skip} | {paused} |"


def replaced(page: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return head + table() + rest.partition(END)[2]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
