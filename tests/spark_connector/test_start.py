"""Spark's Python processes import the pyspark that is installed, and not an archive of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyspark_kohort._start import ARCHIVE, KEEP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
START = ROOT / "pyspark_kohort.pth"
ASKED = """
import site, sys
site.addsitedir(sys.argv[1])
import pyspark
print(pyspark.__file__)
print([name for name in sys.modules if name.startswith(("kohort", "pyspark_kohort"))])
print([name for name in sys.path_importer_cache if name.endswith(".zip")])
"""


class Started(NamedTuple):
    """What a new process has imported pyspark from, what of ours, and the archives it has open."""

    pyspark: str
    ours: str
    archives: str


class Machine:
    """A folder of packages with a pyspark, in which lies an archive of it."""

    def __init__(self, place: Path) -> None:
        self.packages = place / "packages"
        self.installed = make_pyspark(self.packages)
        self.archive = make_archive(self.packages / ARCHIVE)
        shutil.copy(START, self.packages)

    def start(self, *path: Path, **environment: str) -> Started:
        """Start Python as Spark does."""
        answer = subprocess.run(
            [sys.executable, "-S", "-c", ASKED, str(self.packages)],
            env={"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))} | environment,
            check=True,
            text=True,
            capture_output=True,
            timeout=30,
        )
        assert answer.stderr == ""
        return Started(*answer.stdout.splitlines())


def make_pyspark(place: Path) -> str:
    package = place / "pyspark" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.touch()
    return str(package)


def make_archive(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_installed_pyspark_is_taken_for_its_archive(machine: Machine) -> None:
    started = machine.start(machine.archive)
    assert started.pyspark == machine.installed
    assert started.ours == "['pyspark_kohort', 'pyspark_kohort._start']"
    assert str(machine.archive) not in started.archives  # or it would be read again and again


def test_the_archive_of_another_spark_stays(machine: Machine, tmp_path: Path) -> None:
    other = make_archive(tmp_path / "spark" / ARCHIVE)
    assert machine.start(other).pyspark.startswith(str(other))
    assert machine.start(other, machine.archive).pyspark.startswith(str(other))


def test_another_pyspark_that_would_be_found_first_does_not_win(
    machine: Machine, tmp_path: Path
) -> None:
    make_pyspark(tmp_path / "mine")
    started = machine.start(machine.archive, tmp_path / "mine")
    assert started.pyspark.startswith(str(machine.archive))


def test_it_can_be_switched_off(machine: Machine) -> None:
    started = machine.start(machine.archive, **{KEEP: "1"})
    assert started.pyspark.startswith(str(machine.archive))


def test_other_processes_are_left_alone(machine: Machine) -> None:
    started = machine.start()
    assert (started.pyspark, started.ours) == (machine.installed, "[]")


@pytest.mark.spark
def test_workers_of_spark_import_the_installed_one(spark: SparkSession) -> None:
    def place(_: int) -> str:
        import pyspark

        return pyspark.__file__

    [found] = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert "pyspark.zip" not in found
