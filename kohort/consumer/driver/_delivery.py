"""Delivery of buffered records to the caller. Ctrl-C loses none.

This is the one explanation of interrupt safety. Other places refer to it as "see _delivery".

CPython runs signal handlers when a Python function is entered, after a call of a function in C, and
when a loop goes back. So Ctrl-C may raise KeyboardInterrupt in any call of a poll. The call may be
in ``finally``, and the records may be out of their buffer already. Four rules keep them:

1. A :class:`Delivery` exists before the poll begins. It stores the target of a drain before the
   drain, and other records without a call after they are taken.
2. A poll that raises rolls its delivery back. The records return to the buffer, and their positions
   return with them.
3. Attributes that must change together are stored in one run of statements without a call, which no
   signal handler interrupts.
4. Two objects that would be inconsistent in between are one: the lock and its owner, a queued
   callback and its place in the queue.

An interrupted drain returns its decoded records to the fetches. The consumer fetches the rows of a
table again. Cancellation of an async call follows the same rules.

The consumer thread gets no signals. On trio KeyboardInterrupt is raised in the running task.
``_interrupts`` keeps it out of the engine's tasks. So the consumer still leaves its group. Other
parts follow these rules:

- A callback stays in the queue until it is done. An interrupted listener counts as called, and the
  rebalance continues. An interrupted assignor counts as failed.
- A call waits for a CallResult. Ctrl-C in a method of ``concurrent.futures.Future`` may leave its
  lock acquired, and then the consumer thread would wait for the lock.
- The consumer stores its thread before it starts it, so an interrupt leaves no unknown thread.
- ``poll_arrow()`` and ``poll_batches()`` import before they poll.

tests/consumer/driver/test_interrupts.py interrupts every call of a poll once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias

from kohort.consumer.driver._iteration_buffer import DrainSize, IterationBuffer
from kohort.consumer.engine._observed import Observed
from kohort.fetcher import FetchBuffer, RecordTarget
from kohort.types import TopicPartition

Chosen: TypeAlias = Collection[TopicPartition] | None
"""The partitions of a poll, or None for all."""


class Delivery(Protocol):
    """Records that one poll has taken out of a buffer and not returned yet."""

    def take(self, partitions: Chosen, *, repeat_errors: bool) -> bool:
        """Take buffered records of these or all partitions. Return True if the poll may end.

        Raise the errors of FetchBuffer.drain().
        """
        ...

    def roll_back(self) -> None:
        """Return the records to where the next poll finds them, because this one failed."""
        ...


class CallDelivery(Delivery, Protocol):
    """The delivery of a call, which may be observed."""

    def observed(self) -> Observed | None:
        """Return what was delivered, or None for nothing."""
        ...


class PollDelivery:
    """The records of one poll(): buffered ones of iteration first, then fetched ones."""

    __slots__ = ("_count", "_fetched", "_iterated", "target")

    def __init__(
        self, fetched: FetchBuffer, iterated: IterationBuffer, count: int, target: RecordTarget
    ) -> None:
        self.target = target
        """The target whose records poll() returns. It reads only attributes, without a call."""
        self._fetched = fetched
        self._iterated = iterated
        self._count = count

    def take(self, partitions: Chosen, *, repeat_errors: bool) -> bool:
        self.target = target = RecordTarget()
        if self._iterated.is_withheld:
            return False
        if self._iterated:
            target.records = self._iterated.take(self._count, partitions)
            if target.records:
                return True
        self._fetched.drain(self._count, partitions, repeat_errors=repeat_errors, target=target)
        return bool(target.records)

    def roll_back(self) -> None:
        self._iterated.load(self.target.records, undelivered=True)

    def observed(self) -> Observed | None:
        records = self.target.records
        if not records:
            return None
        return Observed(records.keys(), sum(map(len, records.values())), records)


class IterationDelivery:
    """The fetched records that one step of iteration adds to its buffer."""

    __slots__ = ("_clock", "_fetched", "_iterated", "_size", "_target")

    def __init__(
        self,
        fetched: FetchBuffer,
        iterated: IterationBuffer,
        size: DrainSize,
        clock: Callable[[], float],
    ) -> None:
        self._target = RecordTarget()
        self._fetched = fetched
        self._iterated = iterated
        self._size = size
        self._clock = clock

    def take(self, partitions: Chosen, *, repeat_errors: bool) -> bool:
        if self._iterated.is_withheld:
            return False
        if self._iterated.has_next():
            return True
        self._target = target = RecordTarget()
        begun = self._clock()
        self._fetched.drain(
            self._size.count, partitions, repeat_errors=repeat_errors, target=target
        )
        self._size.adapt(target.records.values(), self._clock() - begun)
        return bool(target.records)

    def commit(self) -> None:
        """Add the records to the buffer of iteration, except those that it has already."""
        self._iterated.load(self._target.records)

    roll_back = commit
