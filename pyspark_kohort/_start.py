"""Processes that Spark starts import pyspark from where it is installed, not from an archive of it.

Spark puts ``pyspark.zip`` before all else on their path. Nothing in it is compiled, so each
process, that of every streaming query for one, compiles pyspark anew, which takes longer than to
connect to Kafka, join a group and plan. Where the archive is a part of the very pyspark that is
installed, both have the same files, and those beside it are compiled.

``pyspark_kohort.pth`` calls this as Python starts, if the archive is on the path.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

ARCHIVE = os.path.join("pyspark", "python", "lib", "pyspark.zip")
KEEP = "KOHORT_KEEP_PYSPARK_ZIP"


def prefer_installed(path: list[str]) -> None:
    """Take Spark's archives from the path if the same pyspark is found without them."""
    archives = [entry for entry in path if entry.endswith(os.sep + ARCHIVE)]
    if not archives or os.environ.get(KEEP):
        return
    left = [entry for entry in path if entry not in archives]
    found = PathFinder.find_spec("pyspark", left)
    if found is None or found.origin is None:
        return
    own = os.path.join(os.path.dirname(os.path.dirname(found.origin)), ARCHIVE)
    if all(os.path.realpath(each) == os.path.realpath(own) for each in archives):
        path[:] = left
        for each in archives:  # else it would be read again whenever Spark adds to the path
            sys.path_importer_cache.pop(each, None)


prefer_installed(sys.path)
