"""The start of a streaming query on a machine that is busy with other work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_connector.end_to_end.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOO_LATE = "Python worker failed to connect back"


def started(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Return the started query, whose source has its process.

    Spark ends a query if that process has not started within 10 s, and no setting changes that. No
    code of the source has run by then, so the query starts again, and a new one has no checkpoint.
    """
    is_new = not checkpoint.exists() or not any(checkpoint.iterdir())
    writer = writer.option("checkpointLocation", str(checkpoint))
    while True:
        query = writer.start()
        wait_until(lambda: not query.status["message"].startswith("Initializing"))  # noqa: B023
        if TOO_LATE not in str(query.exception() or ""):
            return query
        if is_new:
            shutil.rmtree(checkpoint)
