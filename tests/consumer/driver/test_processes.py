"""The end of a process with a consumer: it ends with its program, closed or not."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import Cluster

PATIENCE_S = 90.0
"""Seconds until a process has ended. A process that waits for a thread never ends."""

INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
"""

SYNC = (
    INTERRUPTIBLE
    + """
import sys
from kohort import KafkaConsumer

def member():
    return KafkaConsumer({topic!r}, bootstrap_servers={servers!r}, group_id={group!r})

def joined(consumer):
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    print("ready", flush=True)
    return consumer
"""
)

ASYNC = (
    INTERRUPTIBLE
    + """
import sys
import {loop} as loop
from kohort import AsyncKafkaConsumer

def member():
    return AsyncKafkaConsumer({topic!r}, bootstrap_servers={servers!r}, group_id={group!r})
"""
)

IN_BLOCK = """
async def main():
    async with member() as consumer:
        print("ready", flush=True)
        {body}

loop.run({main})
"""


class Script:
    """A program in a separate process whose consumer has joined its group."""

    def __init__(self, folder: Path, code: str) -> None:
        path = folder / "program.py"
        path.write_text(code)
        self.process = subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(self.process.communicate()[1])

    def ended(self) -> tuple[int, str]:
        """Return the exit status and standard error. Fail if the process does not end."""
        try:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it did not end: {self.process.communicate()[1]}") from None
        return self.process.returncode, errors


@pytest.fixture
def names(cluster: Cluster, topic: str, group: str) -> dict[str, Any]:
    return {"topic": topic, "group": group, "servers": cluster.bootstrap_servers}


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        ("", 0, ""),
        ("raise ZeroDivisionError", 1, "ZeroDivisionError"),
        ("sys.exit(3)", 3, ""),
        ("raise SystemExit('over')", 1, "over"),
        ("del consumer", 0, ""),
    ],
)
def test_a_program_that_never_closes_its_consumer_ends(
    tmp_path: Path, names: dict[str, Any], end: str, status: int, text: str
) -> None:
    script = Script(tmp_path, SYNC.format(**names) + f"consumer = joined(member())\n{end}\n")
    code, said = script.ended()
    assert (code, text in said) == (status, True), said
    assert "Fatal Python error" not in said


@pytest.mark.parametrize("wait", ["consumer.poll(timeout_ms=600_000)", "next(consumer)"])
@pytest.mark.parametrize("block", [False, True])
def test_an_interrupt_ends_a_program_that_waits_for_records(
    cluster: Cluster, tmp_path: Path, names: dict[str, Any], wait: str, block: bool
) -> None:
    body = f"with member() as consumer:\n    joined(consumer)\n    {wait}\n"
    if not block:
        body = f"consumer = joined(member())\n{wait}\n"
    script = Script(tmp_path, SYNC.format(**names) + body)
    script.process.send_signal(signal.SIGINT)
    code, said = script.ended()
    assert code in (-signal.SIGINT, 1) and "KeyboardInterrupt" in said
    if block:
        assert not cluster.group(names["group"]).members


@pytest.mark.parametrize(
    ("loop", "main"), [("asyncio", "main()"), ("trio", "main"), ("anyio", "main")]
)
@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("raise ZeroDivisionError", 1, "ZeroDivisionError"),
        ("sys.exit(3)", 3, ""),
        ("await anext(consumer)", 1, "KeyboardInterrupt"),
    ],
)
def test_an_asynchronous_program_ends_and_leaves_its_group(
    cluster: Cluster,
    tmp_path: Path,
    names: dict[str, Any],
    loop: str,
    main: str,
    body: str,
    status: int,
    text: str,
) -> None:
    code = ASYNC.format(loop=loop, **names) + IN_BLOCK.format(body=body, main=main)
    script = Script(tmp_path, code)
    if text == "KeyboardInterrupt":
        script.process.send_signal(signal.SIGINT)
    ended, said = script.ended()
    assert ended == status or (text == "KeyboardInterrupt" and ended == -signal.SIGINT), said
    assert text in said
    assert not cluster.group(names["group"]).members


def test_an_event_loop_that_ends_without_a_stop_ends(tmp_path: Path, names: dict[str, Any]) -> None:
    body = """
    async def main():
        consumer = member()
        await consumer.start()
        print("ready", flush=True)

    loop.run(main())
    """
    code = ASYNC.format(loop="asyncio", **names) + textwrap.dedent(body)
    assert Script(tmp_path, code).ended()[0] == 0
