"""Stop of a query between two micro-batches, with all offsets committed.

Spark does not notify a source of the end of its query, and the source runs in another process than
the user's calls. Both know the offsets of the query. stop() therefore writes a request file with
these offsets to a folder that both can find. The source that knows the offsets acknowledges it.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kohort.logs import error_text, get_logger
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import StreamOffset

logger = get_logger("kohort.spark_connector")

CHECK_S = 0.1
"""Seconds between two looks for requests. Spark calls an idle source every 10 ms."""
MAX_SIZE = 16 << 20
OFFSETS_KEPT = 100
"""Recent offsets by which a query recognizes a request. It may be ahead of its progress."""
STALE_S = 86_400.0
"""Age of files that killed processes left."""


class StreamingQuery(Protocol):
    """Part of Spark's StreamingQuery that is used here. Spark has more than one class of it."""

    @property
    def isActive(self) -> bool: ...
    @property
    def lastProgress(self) -> Any: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...
    def stop(self) -> None: ...


def stop(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Stop a streaming query between two micro-batches, with all that it has read committed.

    Wait until the running micro-batch is finished and its offsets are committed, for at most
    ``timeout_s``. Then stop the query in any case. Return True if nothing is left uncommitted.

    With a trigger interval the request takes effect at the next trigger, so ``timeout_s`` has to be
    longer than the interval. Call the function on the machine of the driver, as its user.

    Return False for a query that had ended before, because the state at its end is unknown. A run
    of ``trigger(availableNow=True)`` that finished has committed everything.
    """
    if not query.isActive:
        logger.warning(
            "the query had already ended. After trigger(availableNow=True) all offsets are "
            "committed, unless a warning named a failed commit. After another trigger those of the "
            "last micro-batch may be uncommitted"
        )
        query.stop()
        return False
    rested = False
    try:
        rested = _wait_for_commit(query, time.monotonic() + timeout_s)
    except OSError as error:
        logger.warning("the query did not get the request to stop: %s", error_text(error))
    finally:
        query.stop()
    if not rested:
        logger.warning("the query was stopped, but its last micro-batch may be uncommitted")
    return rested


def _wait_for_commit(query: StreamingQuery, deadline: float) -> bool:
    while query.isActive and not query.recentProgress and time.monotonic() < deadline:
        time.sleep(CHECK_S)
    progress = query.lastProgress
    wanted = list(_offsets_of(progress)) if progress is not None else []
    return bool(wanted) and _request_stop(wanted, lambda: query.isActive, deadline)


def _offsets_of(progress: Any) -> Iterable[str]:
    """Yield the end offsets of the sources of this connector."""
    for source in as_dict(progress).get("sources", ()):
        offset = as_dict(source.get("endOffset"))
        try:
            StreamOffset.from_json(offset)
        except OffsetFormatError:
            continue
        yield _offset_text(offset)


def _request_stop(wanted: list[str], active: Callable[[], bool], deadline: float) -> bool:
    """Write a request and wait until each source acknowledges it. Raise OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, exist_ok=True)
    check_owner(folder)
    _clear(folder)
    name = uuid.uuid4().hex
    request = folder / f"{name}.stop"
    until = time.time() + deadline - time.monotonic()
    unfinished = folder / f"{name}.new"
    try:
        unfinished.write_text(json.dumps({"offsets": wanted, "until": until}), "utf-8")
        unfinished.rename(request)
        while True:
            waits = active() and time.monotonic() < deadline
            if len(list(folder.glob(f"{name}.*.done"))) >= len(wanted):
                return True
            if not waits:
                return False
            time.sleep(CHECK_S / 4)
    finally:
        # Remove the request first. A source that acknowledges too late then sees that the request
        # is gone and removes its acknowledgement.
        request.unlink(missing_ok=True)
        for left in folder.glob(f"{name}.*"):
            left.unlink(missing_ok=True)


def directory() -> Path:
    """Return the folder for requests. It belongs to the user, and no other user can write to it."""
    return Path(tempfile.gettempdir()) / f"kohort-spark-{_user()}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def check_owner(folder: Path) -> None:
    """Raise PermissionError if other users can write to the folder. Raise OSError."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is not a directory. Remove it")
    if hasattr(os, "getuid") and (found.st_uid != _user() or found.st_mode & 0o022):
        raise PermissionError(
            f"{folder} has to belong to user {_user()}, and no other user may write to it. "
            "Remove it"
        )


def _clear(folder: Path) -> None:
    """Remove files that killed processes left in the folder."""
    for entry in os.scandir(folder):
        if entry.name.endswith((".stop", ".new", ".done", ".end")):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_S:
                    Path(entry.path).unlink()


class StopRequests:
    """Requests as the source sees them. It needs each offset that Spark passes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[str] = deque(maxlen=OFFSETS_KEPT)
        self._last: object = None
        self._due = float("-inf")
        self._requests: list[Path] = []
        self._acknowledged: set[Path] = set()
        self._name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def applies_to(self, start: dict[str, Any]) -> bool:
        """True if a request asks the query with this offset to stop."""
        if start != self._last:
            self._last = start
            self._seen.append(_offset_text(start))
        now = self._clock()
        if now >= self._due:
            self._due = now + CHECK_S
            self._requests = [path for path in _requests() if self._is_addressed_here(path)]
        return bool(self._requests)

    def acknowledge(self) -> None:
        """Acknowledge the requests: no micro-batch is running and all offsets are committed."""
        for request in set(self._requests) - self._acknowledged:
            done = request.with_suffix(f".{self._name}.done")
            try:
                done.touch()
                if not request.exists():  # stop() has ended in the meantime
                    done.unlink(missing_ok=True)
            except OSError as error:
                logger.warning(
                    "the request to stop could not be acknowledged: %s", error_text(error)
                )
        self._acknowledged = set(self._requests)

    def _is_addressed_here(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                request = json.loads(file.read(MAX_SIZE))
            return request["until"] > time.time() and self._has_seen(request["offsets"])
        except (OSError, ValueError, KeyError, TypeError):
            return False  # removed, or another program's file

    def _has_seen(self, offsets: list[str]) -> bool:
        return any(each in self._seen for each in offsets)


def _requests() -> list[Path]:
    folder = directory()
    try:
        check_owner(folder)
        return [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".stop")]
    except OSError:
        return []


def as_dict(value: Any) -> dict[str, Any]:
    """Return Spark's progress as a dict.

    It may be an object, JSON or a dict. Anything else gives an empty dict.
    """
    value = getattr(value, "json", value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _offset_text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, sort_keys=True)
