"""Reader for ``spark.readStream`` on Spark 4.2 and newer, which limit micro-batches."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kohort.spark_connector._offsets import nested
from kohort.spark_connector._stream import KohortStreamReader


class LimitedStreamReader(KohortStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that gets the end of the last micro-batch and a limit for the next one."""

    def getDefaultReadLimit(self) -> ReadLimit:
        self._note_call()
        maximum, minimum = (
            self._options.max_offsets_per_trigger,
            self._options.min_offsets_per_trigger,
        )
        if maximum is not None:
            # Spark has no limit for both: the driver applies the minimum.
            return ReadMaxRows(maximum)
        return ReadAllAvailable() if minimum is None else ReadMinRows(minimum)

    def prepareForTriggerAvailableNow(self) -> None:
        self._note_call()
        self._ensure_driver().prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.next_batch(start, max_rows, ignore_minimum=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return nested(self._driver.latest_offsets()) if self._driver is not None else None
