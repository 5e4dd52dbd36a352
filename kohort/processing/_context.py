"""The context of a running handler."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from kohort.errors import IllegalStateError
from kohort.processing._partition import Lane


class Slot:
    """A place for one running handler: the lane that it works on, and whether it is to end.

    A slot whose handler was cancelled is never used again. So code that a handler left running
    always sees that it is cancelled.
    """

    __slots__ = ("is_cancelled", "lane", "scope")

    def __init__(self, scope: Any = None) -> None:
        self.lane: Lane | None = None
        self.scope = scope
        self.is_cancelled = False


current_slot: ContextVar[Slot] = ContextVar("kohort.processing.slot")


class HandlerContext:
    """What a handler can ask about its call; :data:`context` is the only instance."""

    @property
    def cancelled(self) -> bool:
        """True if the handler should end: its partition is gone, or process() stops.

        A coroutine is cancelled as well. A function in a thread goes on until it returns, and its
        result is ignored.
        """
        return self._slot().is_cancelled

    @property
    def attempt(self) -> int:
        """The number of this call for the same record or batch, from 1."""
        lane = self._slot().lane
        return 0 if lane is None else lane.attempt

    @property
    def deadline(self) -> float | None:
        """The time at which the handler is cancelled, or None if nothing asks it to end.

        It is a time of ``anyio.current_time()``, and of ``time.monotonic()`` with KafkaConsumer.
        """
        lane = self._slot().lane
        return None if lane is None else lane.partition.deadline

    def _slot(self) -> Slot:
        slot = current_slot.get(None)
        if slot is None:
            raise IllegalStateError("kohort.processing.context is for handlers of process() only")
        return slot


context: HandlerContext = HandlerContext()
