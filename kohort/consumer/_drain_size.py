"""Limits of a consumer's steps: seconds without a yield to the event loop, records of a drain."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kohort.records import ConsumerRecord

YIELD_SECONDS = 0.01
"""Seconds between two yields to the event loop while records are read.

The event loop runs a timer one iteration after the iteration that finds it due. So a timeout is
late by at most two of these intervals and one clock tick. One yield costs about 20 us."""
POLLS_AT_ONCE = 4
"""Factor of ``max_poll_records`` for one drain of iteration. A drain costs about 20 us."""
DRAIN_BYTES = 512 << 10
"""Maximum bytes of keys and values in one drain. More would not stay in the CPU caches."""
MIN_RECORDS = 50
"""Minimum number of records in one drain, regardless of their size."""
MAX_GROWTH = 10
"""Maximum factor between one drain and the next."""


class DrainSize:
    """The number of records for the next drain, as :attr:`count`.

    It adapts so that the records of one drain have at most :data:`DRAIN_BYTES`, which stay in the
    CPU caches. With ``timed``, one drain takes at most :data:`YIELD_SECONDS`. This is for
    deserializers that run in an event loop. :attr:`maximum` is the upper bound of the count.
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
        """Adapt the count to the records of a drain, by partition, and to its duration."""
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
