"""Polling for tables: rows in Arrow's layout, without an object for a record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, TypeVar

from kohort.fetcher import TableTarget
from kohort.records import Allocate, SizeHistory, TablePlan
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine
    from kohort.consumer._iteration_buffer import IterationBuffer

T = TypeVar("T")

TABLE_BYTES = 4 << 20
"""Of keys, values and headers: a larger table would be out of all caches when it is read."""


def require_pyarrow() -> None:
    """ImportError that says what to do, unless pyarrow is there."""
    if find_spec("pyarrow") is None:
        raise ImportError(
            "poll_arrow() needs pyarrow: pip install 'kohort[arrow]'. poll_batches() does without"
        )


class TablePoll(Generic[T]):
    """One call of poll_arrow() or its like."""

    def __init__(
        self,
        engine: Engine,
        iteration_buffer: IterationBuffer,
        max_rows: int,
        build: Callable[[TablePlan], T],
        allocate: Allocate,
    ) -> None:
        self.table: T | None = None
        self._engine = engine
        self._iteration_buffer = iteration_buffer
        self._max_rows = max_rows
        self._build = build
        self._allocate = allocate
        self._target: TableTarget[T] | None = None

    def drain(self, partitions: Collection[TopicPartition] | None, *, repeat_errors: bool) -> bool:
        """Take what is there; True if there was anything. Errors as from FetchBuffer.drain()."""
        if self._iteration_buffer and self._iteration_buffer.discard():
            self._engine.callback_queue.engine_loop.call_soon(self._engine.fetcher.wake)
        buffer = self._engine.fetcher.buffer
        if buffer.tables is None:
            buffer.tables = SizeHistory()
        plan = TablePlan(
            self._max_rows, TABLE_BYTES, allocate=self._allocate, history=buffer.tables
        )
        target = TableTarget(plan, self._build)
        # In place before anything is handed out: Ctrl-C comes in calls.
        self._target = target
        buffer.drain_table(target, partitions, repeat_errors=repeat_errors)
        self.table = target.table
        return self.table is not None

    def undo(self) -> None:
        """It did not arrive: have it fetched again."""
        if self._target is not None:
            self._target.undo()
