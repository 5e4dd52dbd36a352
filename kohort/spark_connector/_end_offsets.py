"""Lookup of end offsets that partitions without a leader do not delay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kohort import TopicPartition
from kohort.errors import OffsetsTimeoutError
from kohort.spark_connector._planning import OffsetPlanner

logger = logging.getLogger("kohort.spark_connector")

PARTITIONS_REFRESH_S = 10.0
"""Seconds between two lookups of the partitions. An event may cause an earlier one."""
RETRY_TIMED_OUT_S = 5.0
"""Seconds between two lookups of partitions that timed out. Each takes the whole timeout."""


class EndLookup:
    """Repeated lookup of the ends of one query.

    ``on_timeout`` is called with the error if some ends did not arrive, because their partitions
    may be deleted.
    """

    def __init__(
        self,
        planner: OffsetPlanner,
        timeout_ms: float,
        clock: Callable[[], float],
        on_timeout: Callable[[OffsetsTimeoutError], None],
    ) -> None:
        self._planner = planner
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._on_timeout = on_timeout
        self._timed_out: frozenset[TopicPartition] = frozenset()
        self._due = float("-inf")

    def look_up(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends that arrived. Raise any KafkaError that is no timeout."""
        chosen = frozenset(partitions)
        timed_out = chosen & self._timed_out
        found = self._request(chosen - timed_out)
        if timed_out and self._clock() >= self._due:
            found |= self._request(timed_out)
        self._timed_out = chosen - found.keys()
        return found

    def _request(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._planner.latest(partitions, self._timeout_ms)
        except OffsetsTimeoutError as error:
            self._due = self._clock() + RETRY_TIMED_OUT_S
            self._on_timeout(error)
            return offsets_found(error)


def offsets_found(error: OffsetsTimeoutError) -> dict[TopicPartition, int]:
    """Return the offsets that arrived before the timeout."""
    return {tp: at.offset for tp, at in error.found.items() if at is not None}
