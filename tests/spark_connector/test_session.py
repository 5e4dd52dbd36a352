"""A streaming query after ``spark.stop()``: Spark removes its folders and notifies no source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kohort.spark_connector._errors import SessionStoppedError
from kohort.spark_connector._processes import CHECK_S, KEEP_S, SparkFolders
from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, GROUP, member
from tests.spark_connector.reading import Query, options, produce


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders of a Spark session, named in the environment as Spark names them."""
    made = [tmp_path / "blockmgr-1", tmp_path / "blockmgr-2"]
    for folder in made:
        folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, made)))
    return made


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_member_leaves_when_idle_query_outlives_session(
    cluster: Cluster, folders: list[Path]
) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    assert query.trigger()
    assert not query.trigger()
    for folder in folders:
        folder.rmdir()
    cluster.wait_until(lambda: not cluster.group(GROUP).members, DEADLINE)
    with pytest.raises(SessionStoppedError, match="session of this query was stopped"):
        query.trigger()
    query.stop()


def test_query_without_group_fails_when_session_is_stopped(
    cluster: Cluster, folders: list[Path]
) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    assert query.trigger()
    for folder in folders:
        folder.rmdir()

    def fails() -> bool:
        try:
            query.trigger()
        except SessionStoppedError:
            return True
        return False

    cluster.wait_until(fails, DEADLINE)
    query.stop()


def test_session_lasts_while_any_folder_is_there(folders: list[Path]) -> None:
    clock = Clock()
    session = SparkFolders(clock)
    folders[0].rmdir()
    clock.now += CHECK_S
    session.check()
    folders[1].rmdir()
    session.check()  # too soon for another check
    clock.now += CHECK_S
    with pytest.raises(SessionStoppedError):
        session.check()


def test_folders_stay_young_for_cleaners_of_temporary_files(folders: list[Path]) -> None:
    clock = Clock()
    session = SparkFolders(clock)
    for folder in folders:
        os.utime(folder, (1, 1))
    clock.now += KEEP_S
    session.check()
    assert all(folder.stat().st_mtime > 1 for folder in folders)


@pytest.mark.parametrize("given", [None, "", "no/such/folder"])
def test_session_is_not_watched_when_no_folder_is_known(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given is None:
        monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    else:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", given)
    clock = Clock()
    session = SparkFolders(clock)
    clock.now += CHECK_S
    session.check()
