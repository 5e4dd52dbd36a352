"""Rows of a record set that was read into a table."""

from __future__ import annotations

from typing import Any

from kohort.errors import CorruptBatchError
from kohort.records import (
    RecordSet,
    TablePlan,
    to_columns,
)


def table_of(data: bytes, *, check_crcs: bool = True) -> list[Any]:
    found = RecordSet(data, 0, topic="t", partition=3, check_crcs=check_crcs)
    plan = TablePlan()
    try:
        while not found.done:
            found.add_rows_to(plan)
    except CorruptBatchError as error:
        return [type(error), str(error), error.offset, error.next_offset]
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for columns in to_columns(plan)
        for record in columns
    ]
