"""Data of one schema as one Arrow array: many rows at once, and halves if a row may be bad.

A block that cannot be read at once is halved. A part of at most ``FEW`` rows is read row by row,
by the decoder of records, which decides which rows are bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.schemas._deserializer import Failure
from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")

FEW = 1024
"""Rows that are read one by one. A block with fewer takes about as long at once."""
MOST_BYTES = 1 << 30
"""Bytes of a block."""
LONGEST = (1 << 31) - 1
"""Bytes of the longest record. binary_slice() of pyarrow 26 fails without an end."""

NOT_STORED = (ValueError, TypeError, OverflowError, NotImplementedError)
"""Errors of pyarrow for a value that its type does not take, such as a decimal that is too long."""


class Block(NamedTuple):
    """How data of one schema are decoded."""

    kind: pa.DataType
    """The type of the values."""
    at_once: Callable[[pa.Array], pa.Array | None] | None
    """Decodes many rows. It returns None if one of them may be bad. None: the schema needs
    ``one_by_one``."""
    one_by_one: Callable[[pa.Array], tuple[pa.Array, list[Failure]]]
    """Decodes few rows, and returns the bad ones with their errors."""


def decode_block(bodies: pa.Array, block: Block) -> tuple[pa.Array, list[Failure]]:
    """Return the values of data, null for bad rows, and the bad rows with their errors."""
    parts, failures = [], []
    for start, count in _spans(bodies):
        waiting = [(start, count)]
        while waiting:
            begin, rows = waiting.pop()
            part = bodies.slice(begin, rows)
            if rows <= FEW or block.at_once is None:
                values, bad = block.one_by_one(part)
                failures += [(begin + row, error) for row, error in bad]
            else:
                values = block.at_once(part)
            if values is None:
                half = rows // 2
                waiting += [(begin + half, rows - half), (begin, half)]
            else:
                parts.append(values)
    return pa.concat_arrays(parts) if parts else pa.nulls(0, block.kind), failures


def _spans(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that have at most ``MOST_BYTES``, or one row."""
    waiting = [(0, len(bodies))] if len(bodies) else []
    while waiting:
        start, count = waiting.pop()
        if count > 1 and bodies.slice(start, count).nbytes > MOST_BYTES:
            half = count // 2
            waiting += [(start + half, count - half), (start, half)]
        else:
            yield start, count


def values_one_by_one(
    bodies: pa.Array, kind: pa.DataType, decode_one: Callable[[bytes], Any]
) -> tuple[pa.Array, list[Failure]]:
    """Return the values of ``decode_one`` as an array, null for bad rows, and the bad rows."""
    values: list[Any] = []
    failures: list[Failure] = []
    for row, body in enumerate(bodies.to_pylist()):
        try:
            values.append(decode_one(body))
        except Exception as error:
            values.append(None)
            failures.append((row, error))
    try:
        return pa.array(values, kind), failures
    except NOT_STORED:
        pass
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except NOT_STORED as error:
            values[row] = None
            failures.append((row, error))
    return pa.array(values, kind), failures


def joined(parts: pa.Array) -> pa.Buffer:
    """Return the bytes of all rows of a large_binary, one after another."""
    ends = memoryview(parts.buffers()[1]).cast("q")
    begin, end = ends[parts.offset], ends[parts.offset + len(parts)]
    return parts.buffers()[2].slice(begin, end - begin)
