"""Stopping a query from another process than that of its source."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.spark_connector import _stop_requests, stop
from kohort.testing import Cluster
from tests.spark_connector.members import GROUP, committed, member
from tests.spark_connector.reading import Query, options, produce


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of stop requests in this test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return _stop_requests.directory()


class Running:
    """A query as Spark's API shows it, run by a thread that also produces records."""

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
            time.sleep(0.01)  # a batch takes some time
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
        cluster.wait_until(lambda: running.recentProgress, 60)
        assert stop(running, timeout_s=30)
    cluster.wait_until(other.trigger, 60)
    mine.stop()
    other.stop()


def test_a_source_that_does_not_answer_is_stopped_in_the_end(
    cluster: Cluster, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = member(cluster)
    query.start()
    running = Running(cluster, query)
    running.recentProgress = [{"sources": [{"endOffset": {"v": 1, "from": {}, "to": {}}}]}]
    running._over.set()  # the query is stuck
    running._thread.start()
    assert not stop(running, timeout_s=0.5)
    assert "may be uncommitted" in caplog.text
    assert not running.isActive
    query.stop()


class Seen:
    """A query with progress that never runs a batch."""

    def __init__(self, offset: object = None, *, active: bool = True) -> None:
        end = {"v": 1, "from": {}, "to": {}} if offset is None else offset
        self.isActive = active
        self.recentProgress = [{"sources": [{"endOffset": end}]}]
        self.lastProgress: Any = self.recentProgress[0]
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1
        self.isActive = False


def test_of_a_query_that_has_ended_nothing_is_known(caplog: pytest.LogCaptureFixture) -> None:
    query = Seen(active=False)
    assert not stop(query)
    assert "the query had already ended" in caplog.text


def test_idle_query_does_not_answer_for_one_with_same_offsets(
    cluster: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stop_requests, "CHECK_S", 0.001)
    mine, other = member(cluster), member(cluster, kafka_group_id="other")
    produce(cluster, 5)
    for query in (mine, other):
        query.start()
        cluster.wait_until(query.trigger, 60)
    assert mine.end() == other.end()
    begun = Seen(json.loads(mine.offset_log[-1]))
    produce(cluster, 5)
    cluster.wait_until(lambda: mine.trigger(finish=False), 60)
    cluster.wait_until(other.trigger, 60)
    assert mine.end() == other.end()
    over = threading.Event()
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(stop(begun, timeout_s=30)))

    def idle() -> None:
        while not over.is_set():
            other.trigger()

    idling = threading.Thread(target=idle)
    idling.start()
    asking.start()
    try:
        cluster.wait_until(lambda: list(place.glob("*.stop")), 60)
        # The other query has seen the request by the time that this is committed.
        produce(cluster, 5)
        cluster.wait_until(lambda: committed(cluster, "other").get(0) == 15, 60)
        assert not answers
        mine.finish()
        assert not mine.trigger()  # the request is for it, so there is no third batch
        asking.join(60)
    finally:
        over.set()
        idling.join()
    assert answers == [True]
    assert committed(cluster)[0] == 10
    for query in (mine, other):
        query.stop()


def _a_file(place: Path) -> None:
    place.write_text("")


def _writable_by_others(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def _a_link(place: Path) -> None:
    (place.parent / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [_a_file, _writable_by_others, _a_link])
def test_query_is_stopped_even_if_no_request_can_be_written(
    place: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(place)
    query = Seen()
    assert not stop(query, timeout_s=30)
    assert query.stopped == 1
    assert "the query did not get the request to stop" in caplog.text
    assert "may be uncommitted" in caplog.text


def test_a_full_disk_does_not_keep_a_query_running(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(Path, "write_text", full)
    query = Seen()
    assert not stop(query, timeout_s=30)
    assert query.stopped == 1
    assert "no space" in caplog.text
    assert list(place.iterdir()) == []


def test_requests_in_directory_writable_by_others_are_ignored(place: Path) -> None:
    _writable_by_others(place)
    request = json.dumps({"offsets": ['{"v": 1}'], "until": time.time() + 1000})
    (place / "some.stop").write_text(request)
    assert not _stop_requests.StopRequests().applies_to({"v": 1})
    place.chmod(0o700)
    assert _stop_requests.StopRequests().applies_to({"v": 1})


def test_what_was_left_behind_is_removed(place: Path) -> None:
    place.mkdir(mode=0o700)
    old, new, foreign = place / "old.stop", place / "new.1.done", place / "notes"
    for path in (old, new, foreign):
        path.write_text("")
    for path in (old, foreign):
        os.utime(path, (0, 0))
    query = Seen()
    assert not stop(query, timeout_s=0)
    assert sorted(place.iterdir()) == [new, foreign]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"offsets": 5, "until": 9e99}', '{"offsets": ["x"], "until": 0}']
)
def test_what_is_no_request_is_passed_over(place: Path, text: str) -> None:
    place.mkdir(mode=0o700)
    (place / "some.stop").write_text(text)
    assert not _stop_requests.StopRequests().applies_to({"v": 1})


def test_a_request_is_over_when_it_is_taken_back(place: Path) -> None:
    place.mkdir(mode=0o700)
    now = [0.0]
    requests = _stop_requests.StopRequests(lambda: now[0])
    assert not requests.applies_to({"v": 1})
    request = place / "some.stop"
    request.write_text(json.dumps({"offsets": ['{"v": 1}'], "until": time.time() + 1000}))
    assert not requests.applies_to({"v": 2})  # too soon for another check
    now[0] += 1
    assert requests.applies_to({"v": 2})
    requests.acknowledge()
    (answer,) = place.glob("some.*.done")
    answer.unlink()
    requests.acknowledge()  # once is enough
    assert list(place.iterdir()) == [request]
    request.unlink()
    now[0] += 1
    assert not requests.applies_to({"v": 2})


def test_an_answer_that_comes_too_late_is_taken_back(place: Path) -> None:
    place.mkdir(mode=0o700)
    requests = _stop_requests.StopRequests()
    request = place / "some.stop"
    request.write_text(json.dumps({"offsets": ['{"v": 1}'], "until": time.time() + 1000}))
    assert requests.applies_to({"v": 1})
    request.unlink()
    requests.acknowledge()
    assert list(place.iterdir()) == []
