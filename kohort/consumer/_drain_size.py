"""Limits of what a consumer does at a time: seconds in an event loop, records of a drain."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kohort.records import ConsumerRecord

YIELD_SECONDS = 0.01
"""Seconds of the loop's clock between two turns that reading gives to the event loop.

A timer that is due runs one turn after the turn that finds it due. So a time-out is late by two of
these at most, and by the tick of the clock. One turn costs about 20 us."""
POLLS_AT_ONCE = 4
"""Iteration takes up to this many times ``max_poll_records``. Each time costs about 20 us."""
DRAIN_BYTES = 512 << 10
"""Bytes of keys and values to take at a time: more of them would leave the processor's caches."""
MIN_RECORDS = 50
"""Records to take at a time, however large they are."""
MAX_GROWTH = 10
"""Factor by which one drain may be larger than the one before."""


class DrainSize:
    """Number of records for the next drain, which is :attr:`count`.

    Records that a drain decodes stay in the processor's caches if they have :data:`BYTES` at most.
    With ``timed``, for deserializers that run in an event loop, a drain takes
    :data:`TURN_SECONDS` at most. ``most``: the upper bound.
    """

    __slots__ = ("_timed", "count", "maximum")

    def __init__(self, max_poll_records: int, *, deserializes: bool, timed: bool) -> None:
        factor = 1 if deserializes else POLLS_AT_ONCE
        self.maximum = min(factor * max_poll_records, 2**31 - 1)
        self._timed = deserializes and timed
        self.count = 1 if self._timed else min(self.maximum, max_poll_records)

    def adapt(
        self, drained: Collection[list[ConsumerRecord[Any, Any]]], seconds: float = 0.0
    ) -> None:
        """Note the records of a drain by partition, and its duration."""
        count = sum(map(len, drained))
        if not count:
            return
        size = sum(_size(records[-1]) * len(records) for records in drained)
        fitting = max(MIN_RECORDS, count * DRAIN_BYTES // max(size, 1))
        if self._timed:
            in_time = int(count * YIELD_SECONDS / max(seconds, 1e-9))
            fitting = min(fitting, in_time, MAX_GROWTH * self.count)
        self.count = max(1, min(fitting, self.maximum))


def _size(record: ConsumerRecord[Any, Any]) -> int:
    return max(0, record.serialized_key_size) + max(0, record.serialized_value_size)
