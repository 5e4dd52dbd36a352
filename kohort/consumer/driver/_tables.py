"""Polls that return columns in Arrow's layout, without one Python object per record."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from importlib.util import find_spec
from typing import Generic, TypeVar

from kohort.config import ConsumerConfig
from kohort.consumer.engine._observed import Observed
from kohort.fetcher import FetchBuffer, TableTarget
from kohort.records import Allocate, SizeHistory, TablePlan
from kohort.types import TopicPartition

T = TypeVar("T")

TABLE_BYTES = 4 << 20
"""Maximum bytes of keys, values and headers in one table. More would not stay in CPU caches."""


def require_pyarrow() -> None:
    """Raise ImportError with the command to install pyarrow, unless it is installed."""
    if find_spec("pyarrow") is None:
        raise ImportError(
            "poll_arrow() needs pyarrow. Run pip install 'kohort[arrow]', or use poll_batches()"
        )


def warn_of_deserializers(config: ConsumerConfig, buffer: FetchBuffer) -> None:
    """Warn at the first table of a consumer with deserializers, because they do not run."""
    if buffer.tables is not None:
        return
    buffer.tables = SizeHistory()
    functions = (
        ("key_deserializer", config.deserialize_key),
        ("value_deserializer", config.deserialize_value),
    )
    names = " and ".join(name for name, function in functions if function is not None)
    if names:
        warnings.warn(
            f"poll_arrow() and poll_batches() do not call the {names} of this consumer: columns "
            "have the bytes of the records. Decode the columns, or use poll()",
            UserWarning,
            stacklevel=4,  # of the caller of poll_arrow() or poll_batches()
        )


class TablePoll(Generic[T]):
    """The rows of one poll_arrow() or poll_batches()."""

    def __init__(
        self,
        buffer: FetchBuffer,
        discard_iterated: Callable[[], None],
        max_rows: int,
        build: Callable[[TablePlan], T],
        allocate: Allocate,
    ) -> None:
        self.table: T | None = None
        self._buffer = buffer
        self._discard_iterated = discard_iterated
        self._max_rows = max_rows
        self._build = build
        self._allocate = allocate
        self._target: TableTarget[T] | None = None

    def take(self, partitions: Collection[TopicPartition] | None, *, repeat_errors: bool) -> bool:
        """Build the table from the buffered batches. Return True if there were any.

        Raise the errors of FetchBuffer.drain().
        """
        self._discard_iterated()
        buffer = self._buffer
        plan = TablePlan(
            self._max_rows, TABLE_BYTES, allocate=self._allocate, history=buffer.tables
        )
        target = TableTarget(plan, self._build)
        # It is set before the drain, so that roll_back() finds it (see _delivery).
        self._target = target
        buffer.drain_table(target, partitions, repeat_errors=repeat_errors)
        self.table = target.table
        return self.table is not None

    def roll_back(self) -> None:
        """Let the rows be fetched again, because the table did not reach the caller."""
        if self._target is not None:
            self._buffer.undo(self._target)

    def observed(self) -> Observed | None:
        target = self._target
        if target is None or self.table is None:
            return None
        partitions = {drained.fetch.topic_partition for drained in target.drained}
        return Observed(partitions, target.plan.rows)
