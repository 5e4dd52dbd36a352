"""Ends of micro-batches that a listener of Spark reports before the next trigger."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.spark_connector import BatchEndListener, _group_driver, _stop_requests
from kohort.spark_connector._batch_ends import ReportedEnds, remove_end
from kohort.spark_connector._offsets import StreamOffset
from kohort.spark_connector.member import _member
from kohort.testing import Cluster
from tests.spark_connector.members import (
    DEADLINE,
    GROUP,
    Polling,
    committed,
    held_back,
    member,
    plain,
)
from tests.spark_connector.reading import Query, produce


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the reports in this test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return _stop_requests.directory()


class Progress:
    """A stub of Spark's progress object."""

    def __init__(self, end: str, run: str = "run") -> None:
        sources = [{"endOffset": 17}, {"endOffset": json.loads(end)}]
        self.json = json.dumps({"sources": sources})
        self.runId = run


def report(listener: Any, query: Query) -> None:
    """Report the end of the latest batch, as Spark does after its commit log is written."""
    listener.onQueryProgress(SimpleNamespace(progress=Progress(query.offset_log[-1])))


def test_finished_batch_is_committed_before_next_trigger(cluster: Cluster) -> None:
    produce(cluster, 5)
    query, listener = member(cluster), BatchEndListener()
    query.start()
    query.trigger()
    assert committed(cluster) == {0: 0, 1: 0, 2: 0}
    report(listener, query)
    cluster.wait_until(lambda: committed(cluster) == {0: 5, 1: 0, 2: 0}, DEADLINE)
    query.stop()


def test_revocation_does_not_wait_for_next_trigger(cluster: Cluster) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 5, partition=p)]
    query, listener = member(cluster, rebalanceWait="200s"), BatchEndListener()
    query.start()
    query.trigger()
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: held_back(query), DEADLINE)
        report(listener, query)
        cluster.wait_until(lambda: other.assigned, DEADLINE)
        cluster.wait_until(lambda: committed(cluster) == {0: 5, 1: 5, 2: 5}, DEADLINE)
        assert other.values == []
    assert not query.trigger()
    query.stop()
    assert sorted(query.values()) == sorted(expected)


def test_last_batch_is_committed_if_its_end_comes_after_sigterm(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends the process right after the only batch of trigger(once=True)."""
    monkeypatch.setattr(_member, "LAST_END_S", DEADLINE)
    monkeypatch.setattr(_group_driver, "LEAVE_GROUP_S", DEADLINE)
    produce(cluster, 5)
    query, listener = member(cluster), BatchEndListener()
    listener.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    query.start()
    query.trigger()
    partitions = query.reader._driver._partitions
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    cluster.wait_until(lambda: partitions.is_ending, DEADLINE)
    assert committed(cluster)[0] == 0
    report(listener, query)
    stopping.join(DEADLINE)
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}
    assert not cluster.group(GROUP).members


def test_end_of_a_query_without_listener_waits_for_no_report(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_member, "LAST_END_S", float("inf"))
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    query.stop()
    assert not cluster.group(GROUP).members
    assert committed(cluster)[0] == 0


def test_report_of_another_batch_ends_nothing(cluster: Cluster) -> None:
    produce(cluster, 5)
    query, listener = member(cluster, maxOffsetsPerTrigger=2), BatchEndListener()
    query.start()
    query.trigger()
    report(listener, query)
    cluster.wait_until(lambda: committed(cluster)[0] == 2, DEADLINE)
    query.trigger()
    report(listener, SimpleNamespace(offset_log=query.offset_log[:1]))  # type: ignore[arg-type]
    assert query.reader._driver._partitions.is_in_flight
    query.stop()
    assert committed(cluster)[0] == 2


TP = TopicPartition("t", 0)
OFFSET = StreamOffset({TP: 1}, {TP: 2}, query="0" * 32).to_json()


def reported(listener: Any, run: str = "run") -> bool:
    listener.onQueryProgress(SimpleNamespace(progress=Progress(json.dumps(OFFSET), run)))
    return _has_report()


def _has_report() -> bool:
    return bool(list(_stop_requests.directory().glob("*.end")))


def test_report_from_before_the_run_does_not_count(place: Path) -> None:
    assert reported(BatchEndListener())
    [file] = place.glob("*.end")
    os.utime(file, ns=(0, 0))
    offset = StreamOffset.from_json(OFFSET)
    ends = ReportedEnds()
    assert not ends.has_finished(offset)
    os.utime(file)
    os.utime(file, ns=(file.stat().st_mtime_ns + 10**9,) * 2)
    assert ends.has_finished(offset)
    remove_end("0" * 32)
    assert not ends.has_finished(offset)


def test_report_is_removed_when_the_next_query_ends() -> None:
    """The source of the query that ends may still look for it."""
    listener: Any = BatchEndListener()
    listener.onQueryStarted(SimpleNamespace())
    assert reported(listener, "first")
    listener.onQueryIdle(SimpleNamespace())
    listener.onQueryTerminated(SimpleNamespace(runId="first"))
    assert _has_report()
    assert reported(listener, "second")
    listener.onQueryTerminated(SimpleNamespace(runId="other"))
    assert _has_report()
    listener.onQueryTerminated(SimpleNamespace(runId="second"))
    listener.onQueryTerminated(SimpleNamespace(runId="other"))
    assert not _has_report()


def test_folder_that_cannot_be_used_is_only_logged(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.write_text("a file")
    listener: Any = BatchEndListener()
    listener.onQueryStarted(SimpleNamespace())
    listener.onQueryProgress(SimpleNamespace(progress=Progress(json.dumps(OFFSET))))
    assert "the start of a query was not reported" in caplog.text
    assert "the end of a micro-batch was not reported" in caplog.text
    assert not ReportedEnds().is_expected()
