"""What can go wrong in the connector and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.errors import DataError, KafkaError
from kohort.spark_connector._ranges import OffsetRange


class OffsetFormatError(KafkaError, ValueError):
    """Offsets as JSON, from an option or a checkpoint, that cannot be read."""


class DataLossError(DataError):
    """Records that were to be read are gone; ``ranges`` are those missing.

    Raised with ``failOnDataLoss=true`` only.
    """

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
    """The source was asked to write."""


class SessionStoppedError(KafkaError):
    """The Spark session ended while a streaming query was running."""
