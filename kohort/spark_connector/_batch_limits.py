"""How much of what is there goes into the next micro-batch."""

from __future__ import annotations

from collections.abc import Callable

from kohort import TopicPartition
from kohort.spark_connector._offsets import Offsets
from kohort.spark_connector._options import SourceOptions


class Patience:
    """Waits for ``minOffsetsPerTrigger``, but no longer than ``maxTriggerDelay``."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._least = options.min_offsets_per_trigger or 0
        self._delay = options.max_trigger_delay_s
        self._clock = clock
        self._last = float("-inf")

    def waits(self, positions: Offsets, ends: Offsets) -> bool:
        """Whether there is too little yet. If not, a batch is made of it now."""
        there = sum(ends[tp] - at for tp, at in positions.items())
        if there < self._least and self._clock() - self._last < self._delay:
            return True
        if there:
            self._last = self._clock()
        return False


def limited(positions: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """Ends with at most so many offsets in all, each partition having its share of them."""
    ahead = {tp: ends[tp] - at for tp, at in positions.items()}
    total = sum(ahead.values())
    if total <= most:
        return dict(ends)
    shares = {tp: most * size // total for tp, size in ahead.items()}
    rest = most - sum(shares.values())
    for tp in sorted(ahead, key=lambda tp: (shares[tp] - most * ahead[tp] / total, tp)):
        if rest > 0 and shares[tp] < ahead[tp]:
            shares[tp] += 1
            rest -= 1
    return {tp: at + shares[tp] for tp, at in positions.items()}
