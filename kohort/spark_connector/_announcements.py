"""Detection of two sources of one query that are members of the same group.

Spark makes a source, with a process, of each occurrence of a relation in a plan. A self-join of one
``load()`` therefore has two, and each would get a part of the partitions. No source knows its
query. But Spark calls all sources of a query from one thread, in this order:

1. It creates all of them.
2. It calls the first one and waits for its answer.
3. It calls the next one.

So a source announces itself when it is created, and withdraws that at its first call. In the first
call it waits for those that are still announced. The thread of another query calls its source soon.
A source of the same query is not called, because its thread waits here.

An announcement is a file in the folder of ``_stop_requests``. A lock shows that its reader exists.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kohort.errors import InvalidOptionError
from kohort.logs import error_text, get_logger
from kohort.spark_connector._processes import VARIABLE
from kohort.spark_connector._stop_requests import MAX_SIZE, check_owner, directory
from kohort.spark_connector.options._options import SourceOptions

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = get_logger("kohort.spark_connector")

SUFFIX = ".source"
WAIT_S = 30.0
"""Time in which Spark has made the other sources of a query and calls the first one."""
CHECK_S = 0.05


class Announcement:
    """Announcement of one source, from its creation to its first call."""

    def __init__(
        self,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._source = _description(options)
        self._withdraw: Callable[[], object] | None = None
        # Without the variable Spark has not started this process.
        if fcntl is not None and options.is_member and os.environ.get(VARIABLE):
            try:
                self._withdraw = weakref.finalize(self, _remove, *_write(self._source))
            except OSError as error:
                logger.warning(
                    "[%s] a second source of this query in the same group cannot be noticed: %s",
                    options.group_id,
                    error_text(error),
                )

    def withdraw(self) -> None:
        """Remove the announcement, because no query calls this source."""
        if self._withdraw is not None:
            self._withdraw()
            self._withdraw = None

    def check(self) -> None:
        """Note the first call. Raise InvalidOptionError if the query has such a source twice."""
        if self._withdraw is None:
            return
        self.withdraw()
        others = [path for path in _announced() if self._shares_partitions(path)]
        deadline = self._clock() + WAIT_S
        while others := [path for path in others if _is_announced(path)]:
            if self._clock() >= deadline:
                raise InvalidOptionError(
                    f"option kafka.group.id: the query has two sources in group "
                    f"{self._options.group_id!r} that read the same topics, and each would read a "
                    "part. Spark makes two sources of one load() that is joined with itself. Give "
                    "each side its own load() with another group, or remove kafka.group.id"
                )
            self._sleep(CHECK_S)

    def _shares_partitions(self, path: Path) -> bool:
        """True if the other source is in the same session and group and reads the same topics."""
        try:
            with path.open("rb") as file:
                other = json.loads(file.read(MAX_SIZE))
            return (
                other["session"] == self._source["session"]
                and other["group"] == self._source["group"]
                and other["servers"] == self._source["servers"]
                and _overlap(other, self._source)
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False  # removed, or not written by this version


def _description(options: SourceOptions) -> dict[str, Any]:
    return {
        "session": os.environ.get(VARIABLE),
        "group": options.group_id,
        "servers": options.properties.get("bootstrap.servers"),
        "topics": list(options.topics),
        "pattern": options.pattern,
    }


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """True if both read the same topic, as far as the options show that."""
    if one["pattern"] is not None and one["pattern"] == other["pattern"]:
        return True
    return bool(set(one["topics"]) & set(other["topics"])) or any(
        each["pattern"] is not None
        and any(re.fullmatch(each["pattern"], topic) for topic in names["topics"])
        for each, names in ((one, other), (other, one))
    )


def _write(source: dict[str, Any]) -> tuple[Path, int]:
    """Write an announcement. Return its file and the descriptor that locks it. Raise OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, exist_ok=True)
    check_owner(folder)
    name = uuid.uuid4().hex
    unfinished, path = folder / f"{name}.new", folder / f"{name}{SUFFIX}"
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(source).encode())
        unfinished.rename(path)
    except BaseException:
        _remove(unfinished, descriptor)
        raise
    return path, descriptor


def _remove(path: Path, descriptor: int) -> None:
    with suppress(OSError):
        path.unlink()
    os.close(descriptor)


def _announced() -> list[Path]:
    folder = directory()
    try:
        check_owner(folder)
        return [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except OSError:
        return []


def _is_announced(path: Path) -> bool:
    """True if the source exists and was not called yet. Remove what a killed process left."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
