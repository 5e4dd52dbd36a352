"""Spark's folder without the archive of pyspark, as docs/spark.md advises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

ARCHIVE = "pyspark.zip"


@contextmanager
def unpacked() -> Iterator[Path]:
    """A folder for SPARK_HOME, whose processes import the pyspark that is installed."""
    installed = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _link(installed, home, but="python")
        _link(installed / "python", home / "python", but="lib")
        _link(installed / "python" / "lib", home / "python" / "lib", but=ARCHIVE)
        yield home


def _link(source: Path, target: Path, *, but: str) -> None:
    target.mkdir(exist_ok=True)
    for each in source.iterdir():
        if each.name != but:
            (target / each.name).symlink_to(each)
