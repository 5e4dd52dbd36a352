"""Where partitions end, looked up again and again: what does not come holds nothing else up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kohort import TopicPartition
from kohort.errors import OffsetsTimeoutError
from kohort.spark_connector._planning import Planner

logger = logging.getLogger("kohort.spark_connector")

PARTITIONS_REFRESH_S = 10.0
"""Seconds from one look-up of the partitions to the next, unless something calls for it earlier."""
SILENT_S = 5.0
"""How seldom partitions are asked for that did not come: each time takes the whole time-out."""


class EndLookup:
    """Of one query. ``on_silence`` is called when some have not come: do they exist still?"""

    def __init__(
        self,
        planner: Planner,
        timeout_ms: float,
        clock: Callable[[], float],
        on_silence: Callable[[OffsetsTimeoutError], None],
    ) -> None:
        self._planner = planner
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._on_silence = on_silence
        self._silent: frozenset[TopicPartition] = frozenset()
        self._due = float("-inf")

    def look_up(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends that came. A KafkaError that is no time-out is raised."""
        chosen = frozenset(partitions)
        silent = chosen & self._silent
        found = self._ask(chosen - silent)
        if silent and self._clock() >= self._due:
            found |= self._ask(silent)
        self._silent = chosen - found.keys()
        return found

    def _ask(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._planner.latest(partitions, self._timeout_ms)
        except OffsetsTimeoutError as error:
            self._due = self._clock() + SILENT_S
            self._on_silence(error)
            return offsets_of(error)


def offsets_of(error: OffsetsTimeoutError) -> dict[TopicPartition, int]:
    """What came in time."""
    return {tp: at.offset for tp, at in error.found.items() if at is not None}
