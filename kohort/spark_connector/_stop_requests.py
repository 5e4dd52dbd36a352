"""Stopping a query so that nothing is left uncommitted.

Spark tells a source nothing of its end, and the process that the user's calls are in is not the
one in which the source runs. What both know is the offsets of the query, so a request with these
is laid into a directory that both find, and the source that knows the offsets answers it.
"""

from __future__ import annotations

import json
import logging
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

from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import StreamOffset

logger = logging.getLogger("kohort.spark_connector")

CHECK_S = 0.1
"""An idle query asks for offsets every 10 ms; it looks for requests no more often than this."""
MAX_SIZE = 16 << 20
OFFSETS_KEPT = 100
"""Offsets of a query by which it knows that it is meant: it may be ahead of its progress."""
STALE_S = 86_400.0
"""What is so old in the directory was left behind by processes that were killed."""


class StreamingQuery(Protocol):
    """What is needed of Spark's StreamingQuery, of which there is more than one kind."""

    @property
    def isActive(self) -> bool: ...
    @property
    def lastProgress(self) -> Any: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...
    def stop(self) -> None: ...


def stop(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Stop a streaming query between two micro-batches, with all that it has read committed.

    Waits until the running micro-batch is finished and its offsets are committed, but not longer
    than ``timeout_s``; then the query is stopped in any case. True: nothing is left uncommitted.
    With a trigger interval the moment comes when the next trigger is due, so the time has to be
    longer than that. Call it on the machine of the driver, as its user.

    False for a query that had ended before: what its end was like is not known here any more (a
    run of ``trigger(availableNow=True)`` that came to its end has committed all).
    """
    if not query.isActive:
        logger.warning(
            "the query had ended by itself: all of it is committed after trigger(availableNow=True)"
            ", else its last micro-batch may be uncommitted"
        )
        query.stop()
        return False
    rested = False
    try:
        rested = _wait_for_commit(query, time.monotonic() + timeout_s)
    except OSError as error:
        logger.warning("the query could not be asked to come to rest: %s", str(error))
    finally:
        query.stop()
    if not rested:
        logger.warning("the query was stopped, and its last micro-batch may be uncommitted")
    return rested


def _wait_for_commit(query: StreamingQuery, deadline: float) -> bool:
    while query.isActive and not query.recentProgress and time.monotonic() < deadline:
        time.sleep(CHECK_S)
    progress = query.lastProgress
    wanted = list(_offsets_of(progress)) if progress is not None else []
    return bool(wanted) and _request_stop(wanted, lambda: query.isActive, deadline)


def _offsets_of(progress: Any) -> Iterable[str]:
    """Where the sources of this kind are that the progress is of."""
    for source in as_dict(progress).get("sources", ()):
        offset = as_dict(source.get("endOffset"))
        try:
            StreamOffset.from_json(offset)
        except OffsetFormatError:
            continue
        yield _offset_text(offset)


def _request_stop(wanted: list[str], active: Callable[[], bool], deadline: float) -> bool:
    """Lay a request down and wait for the answer of each source. OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_owner(folder)
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
        # The request first: who answers it too late sees that, and takes the answer back.
        for left in (request, *folder.glob(f"{name}.*")):
            left.unlink(missing_ok=True)


def directory() -> Path:
    """Where requests are laid: one's own folder, that no other user can write to."""
    return Path(tempfile.gettempdir()) / f"kohort-spark-{_user()}"


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _check_owner(folder: Path) -> None:
    """PermissionError where others may have written, or may remove what is written. OSError."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no directory: remove it")
    if hasattr(os, "getuid") and (found.st_uid != _user() or found.st_mode & 0o022):
        raise PermissionError(
            f"{folder} has to belong to the user {_user()}, and nobody else may write to it: "
            "remove it"
        )


def _clear(folder: Path) -> None:
    """Remove what processes left there that were killed."""
    for entry in os.scandir(folder):
        if entry.name.endswith((".stop", ".new", ".done")):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_S:
                    Path(entry.path).unlink()


class StopRequests:
    """The side of the source, which has to be asked with each offset that Spark brings."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[str] = deque(maxlen=OFFSETS_KEPT)
        self._last: object = None
        self._due = float("-inf")
        self._requests: list[Path] = []
        self._acknowledged: set[Path] = set()
        self._name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def applies_to(self, start: dict[str, Any]) -> bool:
        """Whether this query is to come to rest."""
        if start != self._last:
            self._last = start
            self._seen.append(_offset_text(start))
        now = self._clock()
        if now >= self._due:
            self._due = now + CHECK_S
            self._requests = [path for path in _requests() if self._is_addressed_here(path)]
        return bool(self._requests)

    def acknowledge(self) -> None:
        """There is no micro-batch, and all is committed."""
        for request in set(self._requests) - self._acknowledged:
            done = request.with_suffix(f".{self._name}.done")
            try:
                done.touch()
                if not request.exists():  # taken back meanwhile, with the answers to it
                    done.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("the request to stop could not be answered: %s", str(error))
        self._acknowledged = set(self._requests)

    def _is_addressed_here(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                request = json.loads(file.read(MAX_SIZE))
            return request["until"] > time.time() and self._has_seen(request["offsets"])
        except (OSError, ValueError, KeyError, TypeError):
            return False  # taken back, or nothing of ours

    def _has_seen(self, offsets: list[str]) -> bool:
        return any(each in self._seen for each in offsets)


def _requests() -> list[Path]:
    folder = directory()
    try:
        _check_owner(folder)
        return [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".stop")]
    except OSError:
        return []


def as_dict(value: Any) -> dict[str, Any]:
    """Of Spark's progress whatever it comes as: an object, JSON, or a dict; else empty."""
    value = getattr(value, "json", value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _offset_text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, sort_keys=True)
