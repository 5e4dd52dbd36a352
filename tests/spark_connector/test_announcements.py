"""Two sources of one query in the same group, by the order of Spark's calls."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.errors import InvalidOptionError
from kohort.spark_connector import _announcements, _stop_requests
from kohort.spark_connector._announcements import Announcement
from kohort.spark_connector.options._options import SourceOptions
from tests.spark_connector.reading import stream_reader

DEADLINE = 90.0
GROUP = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "billing"}
ORDERS = GROUP | {"subscribe": "orders,returns"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the announcements. The process is one of Spark's."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-1")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return _stop_requests.directory()


class Clock:
    """Time that passes while a source waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def announced(given: dict[str, str], clock: Clock) -> Announcement:
    options = SourceOptions.parse(given, streaming=True)
    return Announcement(options, clock, clock.sleep)


SAME = {
    "topics": ORDERS,
    "one topic": GROUP | {"subscribe": "orders"},
    "pattern": GROUP | {"subscribePattern": "ret.*"},
}
OTHERS = {
    "group": ORDERS | {"kafka.group.id": "shipping"},
    "cluster": ORDERS | {"kafka.bootstrap.servers": "other:1"},
    "topics": GROUP | {"subscribe": "payments"},
    "no group": {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"},
    "partitions": GROUP | {"assign": '{"orders":[0]}'},
}


@pytest.mark.parametrize("other", SAME.values(), ids=SAME)
def test_second_source_that_is_never_called_is_an_error(other: dict[str, str], place: Path) -> None:
    clock = Clock()
    first, second = announced(ORDERS, clock), announced(other, clock)
    with pytest.raises(InvalidOptionError, match="two sources in group 'billing'"):
        first.check()
    assert clock.now >= _announcements.WAIT_S
    second.check()  # the first one is called, so it waits for nothing
    assert not list(place.iterdir())


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_source_that_shares_no_partitions_is_allowed(other: dict[str, str]) -> None:
    clock = Clock()
    first, second = announced(ORDERS, clock), announced(other, clock)
    first.check()
    second.check()
    assert clock.now == 0


def test_source_of_another_session_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    first = announced(ORDERS, clock)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-2")
    second = announced(ORDERS, clock)
    first.check()
    second.check()
    assert clock.now == 0


def test_source_waits_for_the_first_call_of_another_query() -> None:
    """The thread of the other query calls its source while this one waits."""
    clock = Clock()
    second = announced(ORDERS, clock)

    class Busy(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            thread = threading.Thread(target=second.check)
            thread.start()
            thread.join(DEADLINE)

    waiting = Busy()
    first = announced(ORDERS, waiting)
    first.check()
    assert waiting.now == _announcements.CHECK_S


def test_source_made_later_is_of_another_query() -> None:
    clock = Clock()
    first = announced(ORDERS, clock)
    first.check()
    second = announced(ORDERS, clock)
    second.check()
    assert clock.now == 0


def test_announcement_of_a_killed_process_is_removed(place: Path) -> None:
    left = announced(ORDERS, Clock())
    [file] = place.iterdir()
    content = file.read_bytes()
    left.withdraw()
    file.write_bytes(content)  # without a lock
    clock = Clock()
    announced(ORDERS, clock).check()
    assert clock.now == 0
    assert not list(place.iterdir())


CALLS: dict[str, Callable[[Any], object]] = {
    "initialOffset": lambda reader: reader.initialOffset(),
    "getDefaultReadLimit": lambda reader: reader.getDefaultReadLimit(),
    "prepareForTriggerAvailableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "latestOffset": lambda reader: reader.latestOffset({}, None),
    "partitions": lambda reader: reader.partitions({}, {}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_first_call_of_a_reader_checks_before_it_joins(
    call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_announcements, "WAIT_S", 0.0)
    first, second = stream_reader(ORDERS), stream_reader(ORDERS)
    with pytest.raises(InvalidOptionError, match="two sources in group 'billing'"):
        call(first)
    assert first._driver is None
    second.stop()


def test_reader_for_the_executors_is_not_waited_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_announcements, "WAIT_S", 0.0)
    sent = stream_reader(ORDERS)
    pickle.dumps(sent)
    query = stream_reader(ORDERS)
    query.getDefaultReadLimit()
    assert not list(place.iterdir())


def test_folder_of_another_user_is_only_logged(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    announced(ORDERS, Clock()).check()
    assert "cannot be noticed" in caplog.text
