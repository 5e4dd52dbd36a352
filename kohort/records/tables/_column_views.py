"""Columns of keys, values and headers, as sequences over the memory of a table."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import overload

from kohort.records._record import Headers

_ROWS_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 16


class BytesColumn(Sequence["bytes | None"]):
    """Keys or values as bytes, or None for null. Each access copies one entry, view() does not."""

    __slots__ = ("_data", "_ends", "_rows", "_valid")

    def __init__(self, ends: memoryview, data: memoryview, valid: memoryview, rows: range) -> None:
        self._ends = ends
        self._data = data
        self._valid = valid
        self._rows = rows

    def view(self, index: int) -> memoryview | None:
        """Return one entry as a read-only view of the table, or None for null."""
        row = self._rows[operator.index(index)]  # a slice would give a range
        if not self._valid[row >> 3] >> (row & 7) & 1:
            return None
        return self._data[self._ends[row] : self._ends[row + 1]]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...

    @overload
    def __getitem__(self, index: slice) -> BytesColumn: ...

    def __getitem__(self, index: int | slice) -> bytes | BytesColumn | None:
        if isinstance(index, slice):
            return BytesColumn(self._ends, self._data, self._valid, self._rows[index])
        view = self.view(index)
        return None if view is None else view.tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        rows, valid = self._rows, self._valid
        if rows.step != 1:
            yield from map(self.__getitem__, range(len(rows)))
            return
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            ends = self._ends[some.start : some.stop + 1].tolist()
            start, stop = ends[0], ends[-1]
            entries: Iterable[bytes]
            if stop - start > _BYTES_AT_ONCE:
                view = self._data
                entries = (view[begin:end].tobytes() for begin, end in pairwise(ends))
            else:
                # A slice of bytes takes half the time of a slice of a view and its copy.
                data = self._data[start:stop].tobytes()
                entries = [data[begin - start : end - start] for begin, end in pairwise(ends)]
            bits = int.from_bytes(valid[some.start >> 3 : (some.stop + 7) >> 3], "little")
            no_nulls = (1 << len(some)) - 1
            if bits >> (some.start & 7) & no_nulls == no_nulls:
                yield from entries
                continue
            for row, entry in zip(some, entries, strict=True):
                yield entry if valid[row >> 3] >> (row & 7) & 1 else None

    def __repr__(self) -> str:
        return f"<BytesColumn of {len(self)}>"


class HeadersColumn(Sequence[Headers]):
    """Headers of records, as in ConsumerRecord."""

    __slots__ = ("_buffers", "_ends", "_rows")

    def __init__(self, buffers: Mapping[str, memoryview], rows: range) -> None:
        self._buffers = buffers
        self._ends = buffers["header_ends"].cast("i")
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Headers: ...

    @overload
    def __getitem__(self, index: slice) -> HeadersColumn: ...

    def __getitem__(self, index: int | slice) -> Headers | HeadersColumn:
        if isinstance(index, slice):
            return HeadersColumn(self._buffers, self._rows[index])
        return self._at(self._rows[index])[0]

    def __iter__(self) -> Iterator[Headers]:
        for headers, _ in self.with_sizes():
            yield headers

    def with_sizes(self) -> Iterator[tuple[Headers, int]]:
        """Yield the headers of each record and their size in bytes, which is -1 without headers."""
        return map(self._at, self._rows)

    def _at(self, row: int) -> tuple[Headers, int]:
        start, stop = self._ends[row], self._ends[row + 1]
        if start == stop:
            return (), -1
        buffers = self._buffers
        which = range(start, stop)
        ends, names = buffers["header_name_ends"].cast("i"), buffers["header_name"]
        value_ends = buffers["header_value_ends"].cast("i")
        values = BytesColumn(
            value_ends, buffers["header_value"], buffers["header_value_valid"], which
        )
        headers = tuple(
            (str(names[ends[at] : ends[at + 1]], "utf-8", "replace"), value)
            for at, value in zip(which, values, strict=True)
        )
        return headers, ends[stop] - ends[start] + value_ends[stop] - value_ends[start]

    def __repr__(self) -> str:
        return f"<HeadersColumn of {len(self)}>"
