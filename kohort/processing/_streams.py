"""The records of one partition, for a function that runs as long as the partition is owned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from kohort import ConsumerRecord
from kohort.processing._core import Core
from kohort.processing._partition import Lane

K = TypeVar("K")
V = TypeVar("V")


class AsyncPartitionRecords(Generic[K, V]):
    """The records of a partition, which end when the partition is revoked or process() stops.

    Call :meth:`done` for each record, in any order. The commit follows the first that is not done.
    """

    def __init__(
        self, core: Core, lane: Lane, wait: Callable[[], Awaitable[None]], apply: Callable[[], None]
    ) -> None:
        self._core = core
        self._lane = lane
        self._wait = wait
        self._apply = apply

    def __aiter__(self) -> AsyncPartitionRecords[K, V]:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        while not self._core.is_over(self._lane):
            if self._lane.queue:
                record: ConsumerRecord[K, V] = self._lane.queue.popleft()
                return record
            await self._wait()
        raise StopAsyncIteration

    def done(self, *records: ConsumerRecord[K, V]) -> None:
        """Mark records as done, so that they may be committed."""
        self._core.finish(self._lane, records)
        self._apply()


class PartitionRecords(Generic[K, V]):
    """The records of a partition, which end when the partition is revoked or process() stops.

    Call :meth:`done` for each record, in any order. The commit follows the first that is not done.
    """

    def __init__(
        self,
        lane: Lane,
        take: Callable[[Lane], Any],
        finish: Callable[[Lane, Iterable[Any]], None],
    ) -> None:
        self._lane = lane
        self._take = take
        self._finish = finish

    def __iter__(self) -> PartitionRecords[K, V]:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        record: ConsumerRecord[K, V] | None = self._take(self._lane)
        if record is None:
            raise StopIteration
        return record

    def done(self, *records: ConsumerRecord[K, V]) -> None:
        """Mark records as done, so that they may be committed."""
        self._finish(self._lane, records)
