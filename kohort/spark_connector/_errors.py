"""Errors that only the connector raises."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.errors import DataError, KafkaError
from kohort.spark_connector._ranges import OffsetRange


class OffsetFormatError(KafkaError, ValueError):
    """Offsets as JSON, from an option or a checkpoint, that cannot be read."""


class DataLossError(DataError):
    """Loss of records that the query had to read. ``ranges`` holds the missing ranges.

    It is raised only with ``failOnDataLoss=true``.
    """

    offset: int
    next_offset: int

    def __init__(self, message: str, ranges: Iterable[OffsetRange]) -> None:
        self.ranges = tuple(ranges)
        first = self.ranges[0]
        super().__init__(
            message,
            topic_partition=first.topic_partition,
            offset=first.start,
            next_offset=first.end,
        )


class ReadOnlyError(KafkaError, NotImplementedError):
    """Attempt to write with this source, which only reads."""


class SessionStoppedError(KafkaError):
    """End of the Spark session while a streaming query was running."""
