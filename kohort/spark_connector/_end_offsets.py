"""Where partitions end, looked up again and again: what does not come holds nothing else up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kohort import TopicPartition
from kohort.errors import OffsetsTimeoutError
from kohort.spark_connector._planning import OffsetPlanner

logger = logging.getLogger("kohort.spark_connector")

PARTITIONS_REFRESH_S = 10.0
"""Seconds from one look-up of the partitions to the next, unless something calls for it earlier."""
RETRY_TIMED_OUT_S = 5.0
"""How seldom partitions are asked for that did not come: each time takes the whole time-out."""


class EndLookup:
    """Of one query. ``on_timeout`` is called when some have not come: do they exist still?"""

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
        """The ends that came. A KafkaError that is no time-out is raised."""
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
    """What came in time."""
    return {tp: at.offset for tp, at in error.found.items() if at is not None}
