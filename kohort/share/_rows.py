"""The rows of one poll_arrow() of a share consumer, with their locks."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kohort.records import arrow_schema, to_arrow
from kohort.share.machine._acquired import Hold
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan


class SharedRows:
    """The decoded rows of a plan. Only those with a lock are returned to the caller."""

    def __init__(self, plan: TablePlan) -> None:
        self._batch: pa.RecordBatch = to_arrow(plan)
        buffer = self._batch.column("offset").buffers()[1]
        self.offsets: list[int] = memoryview(buffer).cast("B").cast("q").tolist()
        """The offset of each row, also of records that other members have locked."""
        self.holds: list[tuple[TopicPartition, dict[int, Hold]]] = []
        """The locks of the rows of each fetch that are returned, in order."""
        self._indices = array("q")

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, partition: TopicPartition, rows: range, holds: Mapping[int, Hold]) -> None:
        """Note the locks of the rows of one fetch."""
        found = {self.offsets[row]: row for row in rows if self.offsets[row] in holds}
        if found:
            self._indices.extend(found.values())
            self.holds.append((partition, {offset: holds[offset] for offset in found}))

    def build(self) -> pa.RecordBatch:
        """Return the rows, with the columns of their locks."""
        batch = self._batch
        if len(self) < batch.num_rows:
            batch = batch.take(_column(pa.int64(), self._indices))
        counts, deadlines = array("i"), array("d")
        for _, holds in self.holds:
            counts.extend(hold.delivery_count for hold in holds.values())
            deadlines.extend(hold.deadline for hold in holds.values())
        return pa.RecordBatch.from_arrays(
            [*batch.columns, _column(pa.int32(), counts), _column(pa.float64(), deadlines)],
            schema=_schema(),
        )


def _column(kind: pa.DataType, values: array[int] | array[float]) -> pa.Array:
    # pa.array() of a list would import pandas.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _schema() -> pa.Schema:
    return (
        arrow_schema()
        .append(pa.field("delivery_count", pa.int32(), nullable=False))
        .append(pa.field("lock_deadline", pa.float64(), nullable=False))
    )
