"""Noticing that partitions are gone, or shorter than what was read of them."""

from __future__ import annotations

import logging
from collections.abc import Collection

from kohort import TopicPartition
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._offsets import Offsets
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")


class LossCheck:
    """Of one run of a stream: it warns of each partition once."""

    def __init__(self, options: SourceOptions) -> None:
        self._fail = options.fail_on_data_loss
        self._stable_only = options.properties.get("isolation.level") == "read_committed"
        self._warned: set[TopicPartition] = set()

    def check(
        self,
        done: Offsets,
        positions: dict[TopicPartition, int],
        ends: Offsets,
        known: Collection[TopicPartition] | None,
    ) -> None:
        """DataLossError, or, if that is not wanted, positions at the beginning of such partitions.

        ``known``: all partitions that there are; of those a query has, ``positions`` and ``ends``.
        """
        gone = [tp for tp in done if tp not in known] if known is not None else []
        # Members that read what is uncommitted may be ahead of what is stable.
        shorter = [
            tp
            for tp, at in positions.items()
            if tp in ends and ends[tp] < at and (tp in done or not self._stable_only)
        ]
        if not gone and not shorter:
            return
        said = [f"{tp.topic}-{tp.partition} is gone" for tp in sorted(gone)]
        said += [
            f"{tp.topic}-{tp.partition} ends at {ends[tp]}, read was up to {positions[tp]}"
            for tp in sorted(shorter)
        ]
        if self._fail:
            raise DataLossError(
                f"{'; '.join(said)}. Was a topic deleted or made anew? Option "
                "failOnDataLoss=false goes on with what is there, from its beginning",
                [
                    *(OffsetRange(*tp, done[tp], done[tp]) for tp in sorted(gone)),
                    *(OffsetRange(*tp, ends[tp], positions[tp]) for tp in sorted(shorter)),
                ],
            )
        if not self._warned >= {*gone, *shorter}:
            self._warned |= {*gone, *shorter}
            logger.warning("%s; going on, as failOnDataLoss=false", "; ".join(said))
        # Where the log starts behind that, the task that reads it begins there.
        positions |= dict.fromkeys(shorter, 0)
