"""Stopping a query from outside of the process in which its source runs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kohort.spark_connector import _control, stop
from kohort.testing import Cluster
from tests.spark_connector.members import GROUP, committed, member
from tests.spark_connector.reading import Query, options
from tests.spark_connector.test_batch import produce


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where requests are laid in this test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return _control.directory()


class Running:
    """A query as Spark gives it to its user, running in a thread, while more and more comes."""

    def __init__(self, cluster: Cluster, query: Query) -> None:
        self.isActive = True
        self.recentProgress: list[Any] = []
        self._cluster = cluster
        self._query = query
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            produce(self._cluster, 2)
            self._query.trigger(finish=False)
            time.sleep(0.01)  # a batch takes its time
            if self._query.commit_log < len(self._query.offset_log):
                self._query.finish()
            end = json.loads(self._query.offset_log[-1])
            self.recentProgress = [{"sources": [{"endOffset": None}, {"endOffset": end}]}]

    @property
    def lastProgress(self) -> Any:
        return self.recentProgress[-1] if self.recentProgress else None

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self.isActive = False


def test_nothing_is_left_uncommitted(cluster: Cluster, place: Path) -> None:
    query = member(cluster)
    query.start()
    with Running(cluster, query) as running:
        assert stop(running, timeout_s=30)
        assert not running.isActive
    assert query.commit_log == len(query.offset_log)
    assert committed(cluster)[0] == query.end()["orders"]["0"]
    assert list(place.iterdir()) == []
    query.stop()
    assert not cluster.group(GROUP).members


def test_a_query_without_a_group_is_stopped_between_batches_too(cluster: Cluster) -> None:
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    with Running(cluster, query) as running:
        assert stop(running, timeout_s=30)
    query.stop()


def test_another_query_goes_on(cluster: Cluster) -> None:
    mine, other = member(cluster), Query(options(cluster, startingOffsets="earliest"))
    other.start()
    other.trigger()
    mine.start()
    with Running(cluster, mine) as running:
        cluster.wait_until(lambda: running.recentProgress, 30)
        assert stop(running, timeout_s=30)
    cluster.wait_until(other.trigger, 30)
    mine.stop()
    other.stop()


def test_a_source_that_does_not_answer_is_stopped_in_the_end(
    cluster: Cluster, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = member(cluster)
    query.start()
    running = Running(cluster, query)
    running.recentProgress = [{"sources": [{"endOffset": {"v": 1, "from": {}, "to": {}}}]}]
    running._over.set()  # it is stuck
    running._thread.start()
    assert not stop(running, timeout_s=0.5)
    assert "may be uncommitted" in caplog.text
    assert not running.isActive
    query.stop()


def test_a_query_that_has_ended_needs_no_answer() -> None:
    class Ended:
        isActive = False
        recentProgress: tuple[Any, ...] = ()
        lastProgress = None

        def stop(self) -> None:
            """It has."""

    assert not stop(Ended())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"offsets": 5, "until": 9e99}', '{"offsets": ["x"], "until": 0}']
)
def test_what_is_no_request_is_passed_over(place: Path, text: str) -> None:
    _control.directory(make=True)
    (place / "some.stop").write_text(text)
    assert not _control.StopRequests().concern({"v": 1})


def test_a_request_is_over_when_it_is_taken_back(place: Path) -> None:
    _control.directory(make=True)
    now = [0.0]
    requests = _control.StopRequests(lambda: now[0])
    assert not requests.concern({"v": 1})
    request = place / "some.stop"
    request.write_text(json.dumps({"offsets": ['{"v": 1}'], "until": time.time() + 1000}))
    assert not requests.concern({"v": 2})  # it does not look so often
    now[0] += 1
    assert requests.concern({"v": 2})
    requests.answer()
    assert len(list(place.glob("some.*.done"))) == 1
    request.unlink()
    now[0] += 1
    assert not requests.concern({"v": 2})
