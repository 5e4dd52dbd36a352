"""Ends of micro-batches, handed over from a listener of Spark to the process of the source.

A source learns the end of a batch when Spark asks for the next one. With a trigger interval that is
much later. A StreamingQueryListener learns it at once, after Spark has written the commit log. The
listener runs in the program's process, and so writes the offsets to a file in the folder of
``_stop_requests``. The name of the file is the id of the checkpoint. The listener also sees if the
query keeps state, which no source does.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from kohort.spark_connector._offsets import StreamOffset
from kohort.spark_connector._stop_requests import MAX_SIZE, check_owner, directory

SUFFIX = ".end"
LISTENING = "listening"
"""File whose time shows when a query started in a program with a listener."""
START_S = 120.0
"""Longest time from the start of a query to the first call of its source, on a busy machine."""


def report_listener() -> None:
    """Note that a query starts whose ends a listener will report. Raise OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, exist_ok=True)
    check_owner(folder)
    (folder / LISTENING).touch()


def report_end(query_id: str, offset: dict[str, Any], *, has_state: bool) -> None:
    """Write the offsets up to which a query has finished. Raise OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, exist_ok=True)
    check_owner(folder)
    unfinished = folder / f"{uuid.uuid4().hex}.new"
    try:
        unfinished.write_text(json.dumps({"end": offset, "state": has_state}), "utf-8")
        unfinished.rename(_path(query_id))
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def remove_end(query_id: str) -> None:
    """Remove the file of a query that has ended. Raise OSError."""
    _path(query_id).unlink(missing_ok=True)


class ReportedEnds:
    """Ends as the source reads them. It reads a file again only if it was replaced.

    Files from before this run do not count. After the restore of a checkpoint, the query may plan
    the same batch again.
    """

    def __init__(self) -> None:
        self._since = time.time_ns()
        self._seen: tuple[int, int] | None = None
        self._end: object = None
        self._has_state = False

    def has_finished(self, offset: StreamOffset) -> bool:
        """True if a listener has reported the end of the batch up to ``offset``."""
        return self._look(offset) and self._end == offset.to_json()

    def is_expected(self) -> bool:
        """True if a listener has noted the start of this run, or of one at the same time."""
        path = directory() / LISTENING
        try:
            check_owner(path.parent)
            return os.stat(path).st_mtime_ns >= self._since - START_S * 1e9
        except OSError:
            return False

    def has_state(self, offset: StreamOffset) -> bool:
        """True if a listener has reported that the query of ``offset`` keeps state."""
        self._look(offset)
        return self._has_state

    def _look(self, offset: StreamOffset) -> bool:
        """Read the report. Return False if this run has none."""
        if offset.query is None:
            return False
        path = _path(offset.query)
        try:
            found = os.stat(path)
            if found.st_mtime_ns < self._since:
                return False
            version = (found.st_ino, found.st_mtime_ns)
            if version != self._seen:
                check_owner(path.parent)
                with path.open("rb") as file:
                    report = json.loads(file.read(MAX_SIZE))
                self._end, self._has_state = report["end"], report["state"] is True
                self._seen = version
        except (OSError, ValueError, KeyError, TypeError):
            return False  # no listener, or another program's file
        return True


def _path(query_id: str) -> Path:
    return directory() / f"{query_id}{SUFFIX}"
