"""Limits of the size of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable

from kohort import TopicPartition
from kohort.spark_connector._offsets import Offsets
from kohort.spark_connector.options._options import SourceOptions


class BatchDelay:
    """Delay until ``minOffsetsPerTrigger`` offsets are available, up to ``maxTriggerDelay``."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._minimum = options.min_offsets_per_trigger or 0
        self._delay = options.max_trigger_delay_s
        self._clock = clock
        self._last = float("-inf")

    def should_wait(self, positions: Offsets, ends: Offsets) -> bool:
        """True if too few offsets are available. Otherwise the caller plans a batch."""
        available = sum(ends[tp] - at for tp, at in positions.items())
        if available < self._minimum and self._clock() - self._last < self._delay:
            return True
        if available:
            self._last = self._clock()
        return False


def limited_ends(positions: Offsets, ends: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """Return ends with at most ``max_offsets`` offsets in total.

    Each partition gets a share in proportion to its available offsets.
    """
    ahead = {tp: ends[tp] - at for tp, at in positions.items()}
    total = sum(ahead.values())
    if total <= max_offsets:
        return dict(ends)
    shares = {tp: max_offsets * size // total for tp, size in ahead.items()}
    rest = max_offsets - sum(shares.values())
    for tp in sorted(ahead, key=lambda tp: (shares[tp] - max_offsets * ahead[tp] / total, tp)):
        if rest > 0 and shares[tp] < ahead[tp]:
            shares[tp] += 1
            rest -= 1
    return {tp: at + shares[tp] for tp, at in positions.items()}
