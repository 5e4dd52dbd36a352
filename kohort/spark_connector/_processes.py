"""Python processes of Spark: garbage collections, cores, and the end of the Spark session.

Spark ends the process of a query with SIGTERM when the query stops or fails. ``spark.stop()`` does
neither: a query that finds no new data runs no job, so nothing in it fails. Spark then calls the
source until the JVM exits, which in a notebook may take days, and a member would keep its
partitions. A source sees one sign: Spark removes the folders of the session's block data, which
Spark names in the environment of the process.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kohort.spark_connector._errors import SessionStoppedError

_frozen: set[int] = set()


def freeze_modules() -> None:
    """Exempt the loaded objects from later garbage collections, once per process.

    Spark calls ``gc.collect()`` after each task and each planning. It takes 30 ms, nearly all of it
    for the modules of pyspark, Arrow and kohort, which live as long as the process. Processes that
    Spark did not start keep their collections.
    """
    process = os.getpid()
    if process not in _frozen and os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        _frozen.add(process)
        gc.freeze()


_DAEMON = "pyspark.daemon"
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|[0-9]+)(?:,[0-9]+)?\])?")


def local_cores() -> int | None:
    """Return the cores of a session with a local master, or None for any other.

    Spark hands a source nothing of its configuration. But the JVM of a local session has the master
    among its arguments. It starts the process of a streaming query itself, and that of a batch
    through the daemon of its Python workers.
    """
    parent = os.getppid()
    try:
        arguments = _arguments(parent)
        if _DAEMON in arguments:
            arguments = _arguments(_parent_of(parent))
    except OSError:  # not Linux, or the processes of other users are hidden
        return None
    return cores_of_local_master(arguments)


def _arguments(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_text("utf-8", "replace").split("\0")


def _parent_of(process: int) -> int:
    """Return the parent of a process. The name before it, in brackets, may contain anything."""
    stat = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    return int(stat.rpartition(")")[2].split()[1])


def cores_of_local_master(arguments: Sequence[str]) -> int | None:
    """Return the cores of a local master among the arguments of spark-submit, or None."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, _, value = argument.partition("=")
        master = argument if before == "--master" else value if name == "spark.master" else ""
        if found := _LOCAL_MASTER.fullmatch(master):
            number = found[1] or "1"
            return (os.cpu_count() or 1) if number == "*" else max(1, int(number))
    return None


VARIABLE = "SPARK_LOCAL_DIRS"
CHECK_S = 1.0
"""Seconds between two looks at the folders."""
KEEP_S = 3600.0
"""Seconds between two updates of the folders' times."""


class SparkFolders:
    """Folders that exist as long as the Spark session of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        named = os.environ.get(VARIABLE, "").split(",")
        self._folders = [folder for folder in named if folder and os.path.isdir(folder)]
        self._clock = clock
        self._look_due = clock() + CHECK_S
        self._keep_due = clock() + KEEP_S

    def check(self) -> None:
        """Raise SessionStoppedError if Spark has removed all folders since the start."""
        now = self._clock()
        if not self._folders or now < self._look_due:
            return
        self._look_due = now + CHECK_S
        if not any(map(os.path.isdir, self._folders)):
            raise SessionStoppedError(
                "the Spark session of this query was stopped while the query was running: call "
                "query.stop() before spark.stop()"
            )
        if now >= self._keep_due:
            self._keep_due = now + KEEP_S
            # Programs that clean /tmp remove what is old, and an idle session changes nothing.
            for folder in self._folders:
                with suppress(OSError):
                    os.utime(folder)
