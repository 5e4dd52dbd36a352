"""The end of a query's process: Spark sends SIGTERM twice, without a warning."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kohort.errors import ErrorCode, ThreadStartError
from kohort.spark_connector import _group_driver
from kohort.spark_connector.member import _member
from kohort.spark_connector.member._shutdown import leave_on_sigterm
from kohort.spark_connector.options._options import SourceOptions
from kohort.testing import Cluster
from tests.spark_connector.members import (
    DEADLINE,
    GROUP,
    committed,
    held_back,
    member,
    member_options,
    owned_by_group,
    plain,
)
from tests.spark_connector.reading import produce

ROOT = Path(__file__).parents[2]

PROCESS = """
import json, sys
from tests.spark_connector.reading import Query

query = Query(json.loads(sys.argv[1]))
query.start()
assert query.trigger()
query.trigger()
print("ready", flush=True)
sys.stdin.buffer.read()  # as in Spark, which has nothing to say
"""


def start(given: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process with a query that has finished a batch."""
    return run(PROCESS, json.dumps(given))


def run(program: str, *words: str) -> subprocess.Popen[str]:
    """Start a program and return when it has printed that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM as Spark does, and return the exit status."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    with process:
        try:
            return process.wait(DEADLINE)
        finally:
            process.kill()


def test_a_query_that_is_ended_commits_and_leaves(cluster: Cluster) -> None:
    produce(cluster, 5)
    with start(member_options(cluster)) as process:
        assert cluster.group(GROUP).members
        assert end(process) == 128 + signal.SIGTERM
    assert not cluster.group(GROUP).members
    assert committed(cluster)[0] == 5


def test_with_a_dead_broker_a_query_ends_all_the_same(cluster: Cluster) -> None:
    produce(cluster, 5)
    with start(member_options(cluster)) as process:
        with cluster.hang():
            begun = time.monotonic()
            assert end(process) == 128 + signal.SIGTERM
        assert time.monotonic() - begun < DEADLINE


STUCK = """
import sys, threading
from kohort.spark_connector.member import _shutdown

class Stuck:
    def request_end(self):
        threading.Event().wait()  # a lock that a blocked thread holds

_shutdown.LEAVE_TIMEOUT_S = 0.2
_shutdown.leave_on_sigterm(Stuck())
print("ready", flush=True)
sys.stdin.buffer.read()
"""


def test_process_ends_when_a_member_blocks_its_end() -> None:
    process = run(STUCK)
    assert end(process) == 128 + signal.SIGTERM


class GroupLeaver:
    """A member that has left already."""

    def request_end(self) -> None:
        """Do nothing."""

    def wait_ended(self, seconds: float) -> bool:
        return True


def test_the_handler_is_there_as_long_as_a_member_is() -> None:
    first, second = leave_on_sigterm(GroupLeaver()), leave_on_sigterm(GroupLeaver())
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    first()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    second()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1


def test_a_handler_of_somebody_elses_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        leave_on_sigterm(GroupLeaver())()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_there_is_no_handler() -> None:
    thread = threading.Thread(target=lambda: leave_on_sigterm(GroupLeaver())())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_query_leaves_while_a_revocation_cannot_commit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers respond with a retriable error, and nothing wakes a callback."""
    monkeypatch.setattr(_member, "COMMIT_MS", 600_000)
    monkeypatch.setattr(_group_driver, "LEAVE_GROUP_S", DEADLINE)
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    with plain(cluster) as other:
        cluster.wait_until(lambda: other.poll(50) or held_back(query))
        with cluster.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None):
            query.trigger()  # ends the batch that the revocation waits for
            cluster.wait_until(lambda: len(owned_by_group(query)) < 3)
            query.stop()
        assert len(cluster.group(GROUP).members) == 1


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("no_threads")
def test_sigterm_keeps_its_action_when_no_thread_starts(caplog: pytest.LogCaptureFixture) -> None:
    undo = leave_on_sigterm(GroupLeaver())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert "SIGTERM, which will end the query before it leaves its group" in caplog.text
    undo()


@pytest.mark.usefixtures("no_threads")
def test_group_member_raises_when_no_thread_starts() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.group.id": "g"}
    options = SourceOptions.parse(given, streaming=True)
    with pytest.raises(ThreadStartError, match="group member did not start"):
        _member.GroupMember(options)
