"""Rows of several partitions, planned first and then put into one table of Arrow's layout."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from kohort.errors import CorruptBatchError
from kohort.records._decoder import (
    Columns,
    Sizes,
    fill_body,
    fill_plain,
    measure_body,
    measure_plain,
)
from kohort.records._header import COMPRESSION_MASK, BatchHeader
from kohort.records._scratch import Scratch
from kohort.records._split import RecordBatch

MAX_BYTES = 1 << 30
"""Of keys, values and headers in a table: its offsets have 31 bits."""
MAX_ROWS = 1 << 22
"""So that the topics' names fit, too, however long."""
_ALL_FIT = -2

Buffer: TypeAlias = memoryview
Allocate: TypeAlias = Callable[[int], memoryview]
"""Writable bytes, of at least this size."""


class _Piece(NamedTuple):
    """Plain batches in ``data``, or the body of one batch; rows up to a count of the table's."""

    data: memoryview | bytes
    pos: int
    end: int
    start_offset: int
    rows: int
    topic: bytes
    partition: int
    header: BatchHeader | None


class Table(NamedTuple):
    """The buffers of the columns, by name, and how many rows and headers are in them."""

    rows: int
    headers: int
    buffers: dict[str, Buffer]


class TablePlan:
    """What is going to be in a table of at most ``max_rows`` rows and about ``max_bytes``."""

    def __init__(self, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self.max_rows = min(max_rows, MAX_ROWS)
        self._max_bytes = min(max_bytes, MAX_BYTES)
        self._sizes = Sizes()
        self._pieces: list[_Piece] = []
        self._full = False

    @property
    def rows(self) -> int:
        """So many are planned."""
        return self._sizes.rows

    @property
    def has_room(self) -> bool:
        """More may be added."""
        return not self._full and self._sizes.rows < self.max_rows

    def add_plain(
        self,
        data: memoryview,
        pos: int,
        end: int,
        start_offset: int,
        check_crcs: bool,
        topic: bytes,
        partition: int,
    ) -> tuple[int, int]:
        """As measure_plain(). ``data`` has to stay as it is until the table is built."""
        sizes = self._sizes
        before = sizes.rows
        stop, passed = measure_plain(
            data, pos, end, start_offset, self.max_rows, self._max_bytes, check_crcs, sizes
        )
        if sizes.rows > before:
            piece = _Piece(data, pos, end, start_offset, sizes.rows, topic, partition, None)
            self._pieces.append(piece)
        if stop < end and sizes.rows:
            size = RecordBatch.at(data, stop).header.size
            self._full = self._bytes() + size > self._max_bytes
        return stop, passed

    def add_batch(
        self,
        batch: RecordBatch,
        start_offset: int,
        budget: int,
        scratch: Scratch | None,
        topic: bytes,
        partition: int,
    ) -> int | None:
        """Add one batch that is not plain; None if all of it fits, else the offset to go on from.

        CorruptBatchError.
        """
        body = batch.body(budget, scratch)
        if batch.header.attributes & COMPRESSION_MASK:
            body = bytes(body)  # the scratch is used again before the table is built
        sizes = self._sizes
        if sizes.rows and self._bytes() + len(body) > self._max_bytes:
            self._full = True
            return start_offset
        cut = measure_body(body, batch.header, start_offset, self.max_rows, sizes)
        if cut == -1:
            batch.records(budget)  # this raises what is wrong
            raise batch.located(CorruptBatchError("its records are not what they should be"))
        piece = _Piece(body, 0, len(body), start_offset, sizes.rows, topic, partition, batch.header)
        self._pieces.append(piece)
        return None if cut == _ALL_FIT else cut + 1

    def build(self, allocate: Allocate) -> Table:
        """The table in memory that ``allocate`` gives."""
        sizes = self._sizes
        rows, headers = sizes.rows, sizes.headers
        buffers: dict[str, Buffer] = {}

        def make(name: str, count: int, form: Literal["q", "i", "B"]) -> memoryview:
            size = count * {"q": 8, "i": 4, "B": 1}[form]
            view = buffers[name] = allocate(size)[:size]
            return view.cast(form)

        bits, header_bits = (rows + 7) // 8, (headers + 7) // 8
        topic_bytes = self._topic_bytes()
        columns = Columns(
            make("offset", rows, "q"),
            make("timestamp", rows, "q"),
            make("timestamp_valid", bits, "B"),
            make("timestamp_type", rows, "i"),
            make("partition", rows, "i"),
            make("topic_ends", rows + 1, "i"),
            make("topic", topic_bytes, "B"),
            make("key_ends", rows + 1, "i"),
            make("key", sizes.key_bytes, "B"),
            make("key_valid", bits, "B"),
            make("value_ends", rows + 1, "i"),
            make("value", sizes.value_bytes, "B"),
            make("value_valid", bits, "B"),
            make("header_ends", rows + 1, "i"),
            make("header_name_ends", headers + 1, "i"),
            make("header_name", sizes.name_bytes, "B"),
            make("header_value_ends", headers + 1, "i"),
            make("header_value", sizes.header_value_bytes, "B"),
            make("header_value_valid", header_bits, "B"),
        )
        for piece in self._pieces:
            if piece.header is None:
                fill_plain(
                    piece.data,
                    piece.pos,
                    piece.end,
                    piece.start_offset,
                    piece.rows,
                    piece.topic,
                    piece.partition,
                    columns,
                )
            else:
                fill_body(
                    piece.data,
                    piece.header,
                    piece.start_offset,
                    piece.rows,
                    piece.topic,
                    piece.partition,
                    columns,
                )
        assert (columns.rows, columns.headers) == (rows, headers)
        return Table(rows, headers, buffers)

    def runs(self) -> list[tuple[str, int, range]]:
        """Which rows are of which topic and partition, in order."""
        runs: list[tuple[str, int, range]] = []
        start = 0
        for (topic, partition), pieces in groupby(self._pieces, key=_place):
            stop = [piece.rows for piece in pieces][-1]
            runs.append((topic.decode(), partition, range(start, stop)))
            start = stop
        return runs

    def _bytes(self) -> int:
        sizes = self._sizes
        headers = sizes.name_bytes + sizes.header_value_bytes
        return int(sizes.key_bytes + sizes.value_bytes + headers)

    def _topic_bytes(self) -> int:
        total = before = 0
        for piece in self._pieces:
            total += len(piece.topic) * (piece.rows - before)
            before = piece.rows
        return total


def _place(piece: _Piece) -> tuple[bytes, int]:
    return piece.topic, piece.partition
