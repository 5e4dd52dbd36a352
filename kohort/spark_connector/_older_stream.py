"""Reader for ``spark.readStream`` on Spark 4.0 and 4.1, which have no limits of a micro-batch.

Spark 4.2 passes the end of the last batch to ``latestOffset()``, and a limit. Older versions pass
nothing. This reader knows the end of the last batch all the same:

1. A query that continues from a checkpoint calls ``partitions(end, end)`` before anything else,
   where ``end`` is the newest offset of the checkpoint.
2. Afterwards it is the offset that this reader returned last. Spark runs a batch for each offset
   that differs from the one before, and calls again after the batch has ended.

So a query without such a call has no checkpoint. Spark calls ``latestOffset()`` once in a run of
``trigger(availableNow=True)``, and never if the run repeats an unfinished batch.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kohort.logs import get_logger
from kohort.spark_connector._stream import KohortStreamReader
from kohort.spark_connector.options._options import SourceOptions

logger = get_logger("kohort.spark_connector")


class OlderStreamReader(KohortStreamReader):
    """Stream reader that remembers the end of the last micro-batch."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        super().__init__(schema, options)
        self._end: dict[str, Any] | None = None
        """Newest offset of the checkpoint, None before the first call of the query."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._driver is None:
            logger.warning(
                "Spark %s limits no micro-batch of a Python source and does not show its lag. A "
                "run of trigger(availableNow=True) reads one batch, and the next run commits it "
                "to the group. Spark 4.2 and newer have no such limits",
                pyspark.__version__,
            )
        start = self.initialOffset() if self._end is None else self._end
        maximum = self._options.max_offsets_per_trigger
        self._end = self.next_batch(start, maximum)
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._end = end
        if start == end:
            self._note_call()
            return []
        return super().partitions(start, end)
