"""Progress of a query in a group: its lag, its partitions, and the ends of its batches."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kohort import TopicPartition
from kohort.logs import error_text, get_logger
from kohort.spark_connector._batch_ends import remove_end, report_end, report_listener
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import StreamOffset, flat, is_planned_end
from kohort.spark_connector._stop_requests import as_dict

logger = get_logger("kohort.spark_connector")


def lag(progress: Any) -> dict[TopicPartition, int]:
    """Return the number of offsets left to read for each partition of the query.

    The result is empty on Spark 4.0 and 4.1, whose progress does not have the log end offsets.
    ``progress`` is a query's ``lastProgress``, one of its ``recentProgress``, or its JSON. Sources
    of other connectors are left out.
    """
    found: dict[TopicPartition, int] = {}
    for end, latest in _sources(progress):
        found |= {tp: max(0, at - end.end[tp]) for tp, at in latest.items() if tp in end.end}
    return found


def _sources(progress: Any) -> list[tuple[StreamOffset, dict[TopicPartition, int]]]:
    found = []
    for source in as_dict(progress).get("sources", ()):
        try:
            end = StreamOffset.from_json(as_dict(source.get("endOffset")))
            latest = as_dict(source.get("latestOffset"))
            if not is_planned_end(latest):
                found.append((end, flat(latest, minimum=0)))
        except OffsetFormatError:
            continue  # another connector
    return found


class RebalanceLogger(StreamingQueryListener):
    """Listener that logs the partitions a query gains and loses, from its progress.

    It warns if the query has state, because the state stays with the query. Register it with
    ``spark.streams.addListener(RebalanceLogger())``. The query's own process logs the rebalances
    too, to its stderr.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or get_logger("kohort.spark_connector.rebalance")
        self._level = level
        self._partitions_by_run: dict[str, frozenset[TopicPartition]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing, because a new query has no partitions."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log the difference to the partitions of the progress before."""
        sources = _sources(event.progress)
        if not sources:
            return
        run, name = str(event.progress.runId), event.progress.name or str(event.progress.id)
        partitions = frozenset(tp for _, latest in sources for tp in latest)
        before = self._partitions_by_run.get(run, frozenset())
        self._partitions_by_run[run] = partitions
        for what, changed in (("gained", partitions - before), ("gave up", before - partitions)):
            if changed:
                named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(changed))
                self._logger.log(self._level, "query %s %s %s", name, what, named)
        if before and before != partitions and as_dict(event.progress).get("stateOperators"):
            self._logger.warning(
                "query %s has state and shares its group with other members. Its results are wrong "
                "now, because the state of a partition does not move with it. Give a query with "
                "state its own group",
                name,
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing, because an idle query keeps its partitions."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the partitions of the query."""
        self._partitions_by_run.pop(str(event.runId), None)


class BatchEndListener(StreamingQueryListener):
    """Listener that lets a query commit each micro-batch as soon as Spark has finished it.

    Without it, a query with a trigger interval learns of the end at its next trigger. A query that
    keeps state fails if another member of its group reads, too. Only this listener shows its state.

    Register it with ``spark.streams.addListener(BatchEndListener())``, on the machine of the driver
    and as its user. It serves all queries of the session.
    """

    def __init__(self) -> None:
        self._reported: dict[str, dict[str, str]] = {}
        """Offsets as text by run and checkpoint."""
        self._ended: set[str] = set()
        """Checkpoints of runs that have ended. Their sources may still look for the last report."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Let the sources of the query wait for the report of their last batch."""
        try:
            report_listener()
        except OSError as error:
            logger.warning("the start of a query was not reported: %s", error_text(error))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the end offsets to the sources of the query."""
        reported = self._reported.setdefault(str(event.progress.runId), {})
        progress = as_dict(event.progress)
        has_state = bool(progress.get("stateOperators"))
        for source in progress.get("sources", ()):
            offset = as_dict(source.get("endOffset"))
            try:
                query_id = StreamOffset.from_json(offset).query
            except OffsetFormatError:
                continue  # another connector
            text = json.dumps(offset)
            if query_id is None or reported.get(query_id) == text:
                continue
            try:
                report_end(query_id, offset, has_state=has_state)
                reported[query_id] = text
            except OSError as error:
                logger.warning("the end of a micro-batch was not reported: %s", error_text(error))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing, because no batch has ended."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove what was reported of the runs that ended before this one."""
        ending = set(self._reported.pop(str(event.runId), {}))
        running = {query_id for reported in self._reported.values() for query_id in reported}
        for query_id in self._ended - running - ending:
            with suppress(OSError):
                remove_end(query_id)
        self._ended = ending
