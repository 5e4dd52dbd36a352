"""Python processes of Spark, which collect garbage after each task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.spark_connector._processes import cores_of_local_master
from kohort.testing import Cluster
from tests.spark_connector.reading import options, produce

ROOT = Path(__file__).parents[2]
RUNTIME = "SPARK_PYTHON_RUNTIME"
PLAN = """
import gc, json, sys
from tests.spark_connector.reading import batch_reader

batch_reader(json.loads(sys.argv[1]))
print(gc.get_freeze_count() > 10_000)
"""
TASK = """
import gc, json, os, sys
from tests.spark_connector.reading import batch_reader
from kohort.spark_connector._consumers import close_idle

reader = batch_reader(json.loads(sys.argv[1]))  # in Spark another process plans
os.environ["SPARK_PYTHON_RUNTIME"] = "PYTHON_WORKER"
before = gc.get_freeze_count()
[task] = reader.partitions()
rows = sum(batch.num_rows for batch in reader.read(task))
frozen = gc.get_freeze_count()
list(reader.read(task))
again = gc.get_freeze_count()
close_idle()
print(rows, before < 10_000 < again <= frozen)
"""


def run(cluster: Cluster, program: str, runtime: str | None) -> str:
    """Run a program in a process, with or without the environment of a Spark worker."""
    variables = {name: value for name, value in os.environ.items() if name != RUNTIME}
    if runtime is not None:
        variables[RUNTIME] = runtime
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(options(cluster))],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("runtime", "frozen"), [("PYTHON_WORKER", "True"), (None, "False")])
def test_modules_are_frozen_when_spark_started_the_process(
    cluster: Cluster, runtime: str | None, frozen: str
) -> None:
    assert run(cluster, PLAN, runtime) == frozen


def test_modules_are_frozen_once_after_the_first_task(cluster: Cluster) -> None:
    produce(cluster, 5)
    assert run(cluster, TASK, None) == "5 True"


@pytest.mark.parametrize(
    ("arguments", "cores"),
    [
        (["java", "--master", "local[3]", "job.py"], 3),
        (["java", "--conf", "spark.master=local[4,2]", "pyspark-shell"], 4),
        (["java", "--master", "local"], 1),
        (["java", "--master", "local[*]"], os.cpu_count()),
        (["java", "--master", "spark://h:7077", "local"], None),
        (["java", "--conf", "spark.app.name=local[2]", "pyspark-shell"], None),
        (["java", "--master", "local[2"], None),
        ([], None),
    ],
)
def test_cores_are_those_of_a_local_master(arguments: list[str], cores: int | None) -> None:
    assert cores_of_local_master(arguments) == cores


@pytest.mark.parametrize("between", [[], ["pyspark.daemon"]], ids=["stream", "batch"])
def test_cores_are_read_from_the_jvm_above_the_process(between: list[str]) -> None:
    code = "from kohort.spark_connector._processes import local_cores\nprint(local_cores())"
    run = "import json, subprocess, sys\nsubprocess.run(json.loads(sys.argv[1]), check=True)"
    command = [sys.executable, "-c", code]
    for argument in between:
        command = [sys.executable, "-c", run, json.dumps(command), argument]
    jvm = [sys.executable, "-c", run, json.dumps(command), "--conf", "spark.master=local[7]"]
    done = subprocess.run(jvm, capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.split() == ["7" if sys.platform == "linux" else "None"]
