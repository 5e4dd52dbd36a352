"""A streaming query that keeps a ledger of everything that it writes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.waiting import look_again_soon
from tests.spark_connector.end_to_end.checkpoints import Checkpoint
from tests.spark_connector.end_to_end.ledgers import Ledger, Row
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POISON = "poison"
"""A record with this value fails the task that reads it."""


@dataclass(frozen=True)
class Plan:
    """The settings of a query. A new start with the same folder continues the query."""

    name: str
    folder: str
    options: dict[str, str] = field(default_factory=dict)
    available_now: bool = False
    workers: bool = False
    """True if each row names the folder in which its worker ran."""
    troubled: bool = False
    """True if the first attempts of some tasks fail or hang, see :func:`troubled`."""

    @functools.cached_property
    def ledger(self) -> Ledger:
        return Ledger(Path(self.folder, "ledger"))

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(Path(self.folder, "checkpoint"))


def troubled(folder: Path) -> Callable[[int], int]:
    """Return a function for rows that disturbs first attempts of tasks.

    In the first task of a batch it raises. In the second one it waits until another attempt of this
    task has begun, as speculative execution begins it. It leaves a file in the folder for each.
    """

    def disturb(offset: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, stage = context.partitionId(), context.stageId()
        repeated = folder / f"slow-{stage}"
        if context.attemptNumber() > 0:
            if part == 1:
                repeated.touch()
        elif part == 0:
            (folder / f"failed-{stage}").touch()
            raise ValueError("the first attempt of this task fails")
        elif part == 1:
            while not repeated.exists():
                look_again_soon()
        return offset

    return disturb


def start(spark: SparkSession, plan: Plan) -> StreamingQuery:
    """Start the query. The ledger gets a new file each time that Spark runs a batch."""
    from pyspark.sql.functions import col, expr, lit, udf

    ledger = plan.ledger
    where = udf(os.getcwd).asNondeterministic()() if plan.workers else lit("")

    def write(frame: DataFrame, batch: int) -> None:
        ledger.add(batch, (Row(*row) for row in frame.collect()))
        if ledger.hold.exists():
            ledger.held.touch()
            while ledger.hold.exists():
                look_again_soon()

    offset: Any = col("offset")
    if plan.troubled:
        offset = udf(troubled(Path(plan.folder)), "bigint")("offset").alias("offset")
    checked = f"if(cast(value as string) = '{POISON}', raise_error('poisoned'), value)"
    frame: Any = spark.readStream.format("kohort").options(**plan.options).load()
    writer = (
        frame.select("partition", offset, expr(f"cast({checked} as string) as value"))
        .withColumn("worker", where)
        .writeStream.foreachBatch(write)
        .queryName(plan.name)
    )
    if plan.available_now:
        writer = writer.trigger(availableNow=True)
    return started(writer, plan.checkpoint.folder)
