"""Batches: how records gather, how a batch is cut, and how columns become a table.

The core knows a batch as a list of pieces. A piece is a record, or a :class:`Chunk` of columns.
Both have an offset, and a chunk has rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kohort import ConsumerRecord, RecordColumns
from kohort.errors import DataError

if TYPE_CHECKING:
    import pyarrow


class Chunk:
    """Some rows of the columns that one poll returned for one partition."""

    __slots__ = ("_in_arrow", "columns", "end", "offset", "partition", "rows", "start", "topic")

    def __init__(
        self, columns: RecordColumns, start: int, rows: int, in_arrow: list[Any] | None = None
    ) -> None:
        self.columns = columns
        self._in_arrow: list[Any] = [] if in_arrow is None else in_arrow
        """The columns as a ``RecordBatch``, once a part of them is needed. All parts share it."""
        self.topic, self.partition = columns.topic, columns.partition
        self.start = start
        self.rows = rows
        offsets = columns.offset
        self.offset: int = offsets[start]
        self.end: int = offsets[start + rows - 1] + 1

    def split(self, rows: int) -> tuple[Chunk, Chunk]:
        """Return the first rows, and the others."""
        first = Chunk(self.columns, self.start, rows, self._in_arrow)
        return first, Chunk(self.columns, self.start + rows, self.rows - rows, self._in_arrow)

    def rows_before(self, offset: int) -> int:
        """Return the number of rows before an offset."""
        end = self.start + self.rows
        return bisect_left(self.columns.offset, offset, self.start, end) - self.start

    def record_batch(self) -> pyarrow.RecordBatch:
        """Return the rows in Arrow, without a copy."""
        if not self._in_arrow:
            import pyarrow

            self._in_arrow.append(pyarrow.record_batch(self.columns))
        return self._in_arrow[0].slice(self.start, self.rows)

    def record(self) -> ConsumerRecord[bytes, bytes]:
        """Return the first row as a record."""
        return next(islice(self.columns, self.start, None))


class Unreadable:
    """Data that a poll could not return. It takes the place of its records.

    No handler gets it. It fails at once, and then its dead letter is written. It has the attributes
    of a record without a key, and those of a chunk of one row.
    """

    __slots__ = ("end", "error", "offset", "partition", "topic")

    key = None
    rows = 1
    serialized_value_size = 0
    timestamp = -1

    def __init__(self, error: DataError, offset: int, end: int) -> None:
        self.error = error
        self.topic, self.partition = error.topic_partition
        self.offset = offset
        self.end = end


def table_of(load: list[Chunk]) -> pyarrow.Table:
    """Return the rows of chunks as one table, without a copy."""
    import pyarrow

    return pyarrow.Table.from_batches([chunk.record_batch() for chunk in load])


def rows_of(pieces: Any) -> int:
    """Return the number of rows of these pieces."""
    first = pieces[0] if pieces else None
    if isinstance(first, (Chunk, Unreadable)):
        return sum(getattr(piece, "rows", 1) for piece in pieces)
    return len(pieces)


def end_of(piece: Any) -> int:
    """Return the offset after a record, a chunk or data that cannot be read."""
    end: int = piece.end if isinstance(piece, (Chunk, Unreadable)) else piece.offset + 1
    return end


def cut(pieces: deque[Any], rows: int) -> list[Any]:
    """Remove and return the first pieces, with at most this number of rows.

    A chunk that has more is split. Its other part stays the first of the pieces. Data that cannot
    be read is a batch alone.
    """
    load: list[Any] = []
    while pieces and rows > 0:
        if isinstance(pieces[0], Unreadable):
            return load or [pieces.popleft()]
        piece = pieces.popleft()
        if isinstance(piece, Chunk):
            if piece.rows > rows:
                piece, rest = piece.split(rows)
                pieces.appendleft(rest)
            rows -= piece.rows
        else:
            rows -= 1
        load.append(piece)
    return load


def split_at(pieces: Sequence[Any], offset: int) -> tuple[list[Any], list[Any]]:
    """Return the pieces before an offset, and the others. A chunk with rows of both is split."""
    at = next((n for n, piece in enumerate(pieces) if piece.offset >= offset), len(pieces))
    before, others = list(pieces[:at]), list(pieces[at:])
    if before and isinstance(piece := before[-1], Chunk) and piece.end > offset:
        before[-1], rest = piece.split(piece.rows_before(offset))
        others.insert(0, rest)
    return before, others
