"""Blocks of pages that read without end: each prints a record, and ends by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import pytest

from kohort.testing import Cluster
from tests.house._source import ROOT
from tests.support.snippets import KAFKA_PYTHON_WARNINGS, replaced, run_elsewhere

INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
runpy.run_path("program.py", run_name="__main__")
"""
ONE = "localhost:9092"
TWO = "broker-1.example.org:9092,broker-2.example.org:9092"
PROMPT_S = 25.0
"""Maximum seconds until a program prints a record, and until it ends."""
KAFKA_PYTHON = "from kafka import "
AIOKAFKA = "from aiokafka import "
CONFLUENT = "from confluent_kafka import "


def block(page: str, text: str) -> str:
    """Return the one block of a page that has the text and needs a cluster."""
    [found] = [code for code in run_elsewhere(ROOT / "docs" / page) if text in code]
    return found


def imported_from(package: str, line: str) -> str:
    """Return a block for another client whose import is changed, as the page says."""
    return replaced(block("migration.md", line), {line: f"from {package} import "})


@contextmanager
def started(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a block as a program."""
    (folder / "program.py").write_text(code)
    command = [sys.executable, "-u", "-W", "error", *KAFKA_PYTHON_WARNINGS, "-c", INTERRUPTIBLE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_record(process: subprocess.Popen[str], cluster: Cluster) -> str:
    """Append records until the program prints one. A program may begin at the end of the log."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    Thread(target=read, daemon=True).start()
    for _ in range(round(PROMPT_S / 0.2)):
        cluster.produce("orders", ["tea"])
        try:
            while "tea" not in (line := lines.get(timeout=0.2)):
                pass
        except Empty:
            assert process.poll() is None, process.communicate()[1]
        else:
            return line
    raise AssertionError("the program prints no record")


@pytest.mark.parametrize(
    ("code", "address", "leaves", "client"),
    [
        pytest.param(block("first-consumer.md", TWO), TWO, True, "kohort", id="first-consumer"),
        pytest.param(
            imported_from("kohort.compat.kafka_python", KAFKA_PYTHON),
            ONE,
            False,
            "kohort.compat.kafka_python",
            id="kafka-python with kohort's import",
        ),
        pytest.param(block("migration.md", AIOKAFKA), ONE, True, "aiokafka", id="aiokafka"),
        pytest.param(
            imported_from("kohort.compat.aiokafka", AIOKAFKA),
            ONE,
            True,
            "kohort.compat.aiokafka",
            id="aiokafka with kohort's import",
        ),
        pytest.param(
            block("migration.md", CONFLUENT), ONE, False, "confluent_kafka", id="confluent-kafka"
        ),
    ],
)
def test_a_block_prints_records_until_ctrl_c(
    code: str, address: str, leaves: bool, client: str, tmp_path: Path
) -> None:
    pytest.importorskip(client)
    with Cluster(brokers=2, topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        with started(replaced(code, {address: servers}), tmp_path) as process:
            wait_for_record(process, cluster)
            assert cluster.group("billing").members
            process.send_signal(signal.SIGINT)
            assert process.wait(PROMPT_S) in (-signal.SIGINT, 1)
            assert process.stderr is not None
            # A program that does not close the consumer gets a warning after it.
            assert "KeyboardInterrupt" in process.stderr.read().splitlines()
        assert not (leaves and cluster.group("billing").members)


def test_a_listener_of_kafka_python_cannot_commit(tmp_path: Path) -> None:
    """The block on kafka-python fails as the comment in it says."""
    pytest.importorskip("kafka")
    code = block("migration.md", KAFKA_PYTHON)
    [failure] = [line.partition("# ")[2] for line in code.splitlines() if "RuntimeError" in line]
    with Cluster(topics={"orders": 1}) as cluster:
        code = replaced(code, {ONE: cluster.bootstrap_servers})
        with started(code, tmp_path) as process:
            _, errors = process.communicate(timeout=PROMPT_S)
    assert process.returncode == 1
    # A traceback shows the line with the comment, too, so only the start of a line counts.
    assert any(line.startswith(failure) for line in errors.splitlines())
