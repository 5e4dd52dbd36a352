"""``kohort copy``: complete files, and runs that end at any step."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import kohort
from kohort.cli import _copy, main
from kohort.testing import Cluster, ProducerRecord

COUNT = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3, "empty": 2}) as cluster:
        records = [
            ProducerRecord(
                None if number % 50 == 0 else f"order {number} " + "x" * 100,
                f"k{number}",
                [("trace", b"%d" % number)] if number % 3 else (),
                1_700_000_000_000 + number,
                number % 3,
            )
            for number in range(COUNT)
        ]
        for at in range(0, COUNT, 40):
            cluster.produce("orders", records[at : at + 40])
        yield cluster


def run(cluster: Cluster, *arguments: object) -> int:
    words = ["copy", *map(str, arguments), "--bootstrap-servers", cluster.bootstrap_servers]
    return main(words)


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        table = parquet.read_table(file)
    else:
        table = pa.ipc.open_file(file.read_bytes()).read_all()
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def expected(cluster: Cluster) -> list[dict[str, Any]]:
    table = pa.table(kohort.read("orders", bootstrap_servers=cluster.bootstrap_servers))
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.cases(2)
def test_file_has_the_records_with_headers_and_times(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    file = tmp_path / f"orders{suffix}"
    assert run(cluster, "orders", "--to", file) == 0
    assert capsys.readouterr() == (f"{COUNT} records in {file}\n", "")
    assert len(rows_of(file)) == COUNT
    assert rows_of(file) == expected(cluster)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_range_and_partitions_limit_the_file(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "some.arrow"
    options = ["--from", 10, "--until", 12, "--partition", 0, "--partition", 2]
    assert run(cluster, "orders", "--to", file, *options) == 0
    assert [(row["partition"], row["offset"]) for row in rows_of(file)] == [
        (0, 10),
        (0, 11),
        (2, 10),
        (2, 11),
    ]


def test_empty_topic_gives_a_file_without_rows(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "empty.parquet"
    assert run(cluster, "empty", "--to", file) == 0
    assert parquet.read_table(file).num_rows == 0
    assert "headers" in parquet.read_schema(file).names


class Dead(BaseException):
    """End of the process at one step."""


class Steps:
    """Steps of a run that change files. The one with this number fails, before or after its act."""

    def __init__(self, last: int, *, acts: bool, is_kill: bool) -> None:
        self.last, self.acts, self.is_kill = last, acts, is_kill
        self.count = 0

    def wrap(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.is_kill and self.count > self.last:
                raise Dead
            if self.count != self.last:
                return act(*arguments, **named)
            if self.acts:
                act(*arguments, **named)
            raise Dead if self.is_kill else KeyboardInterrupt

        return step


class Writer:
    """A writer of a file whose calls are steps."""

    def __init__(self, make: Callable[..., Any], steps: Steps, *arguments: Any) -> None:
        self._writer = make(*arguments)
        self.write_table = steps.wrap(self._writer.write_table)
        self.close = steps.wrap(self._writer.close)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize(
    ("suffix", "is_kill"),
    [(".arrow", True), (".parquet", False), (".parquet", True), (".arrow", False)],
)
@pytest.mark.cases(1)
def test_run_that_ends_at_any_step_resumes_with_no_row_twice(
    cluster: Cluster, tmp_path: Path, suffix: str, *, is_kill: bool
) -> None:
    wanted = expected(cluster)
    for number in itertools.count(1):
        for acts in (False, True):
            file = tmp_path / f"{number}{acts}{suffix}"
            steps = Steps(number, acts=acts, is_kill=is_kill)
            with pytest.MonkeyPatch.context() as patch:
                limit(patch)
                for name in ("rename", "write_text"):
                    patch.setattr(Path, name, steps.wrap(getattr(Path, name)))
                patch.setattr(shutil, "rmtree", steps.wrap(shutil.rmtree))
                form = _copy.FORMATS[suffix]
                writer = partial(Writer, form.writer, steps)
                patch.setitem(_copy.FORMATS, suffix, form._replace(writer=writer))
                try:
                    status = run(cluster, "orders", "--to", file, "--part-seconds", "1e-9")
                except Dead:
                    status = None
            if steps.count < number:
                assert status == 0
                assert number > 10
                return
            with pytest.MonkeyPatch.context() as patch:
                limit(patch)
                if not file.exists() or file.with_name(file.name + ".parts").exists():
                    assert run(cluster, "orders", "--to", file) == 0
            assert rows_of(file) == wanted
            assert not file.with_name(file.name + ".parts").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.cases(1)
def test_copy_reads_on_while_rows_are_written(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    limit(monkeypatch)
    has_started, has_read_on = threading.Event(), threading.Event()
    poll = kohort.KafkaConsumer.poll_batches

    def poll_batches(self: Any, timeout_ms: float) -> Any:
        if has_started.is_set():
            has_read_on.set()
        return poll(self, timeout_ms)

    def make(*arguments: Any) -> Any:
        writer = form.writer(*arguments)
        write = writer.write_table

        class Waiting:
            close = writer.close

            def write_table(self, table: pa.Table) -> None:
                has_started.set()
                assert has_read_on.wait(60)
                write(table)

        return Waiting()

    monkeypatch.setattr(kohort.KafkaConsumer, "poll_batches", poll_batches)
    form = _copy.FORMATS[suffix]
    monkeypatch.setitem(_copy.FORMATS, suffix, form._replace(writer=make))
    file = tmp_path / f"orders{suffix}"
    assert run(cluster, "orders", "--to", file) == 0
    assert rows_of(file) == expected(cluster)


@pytest.mark.parametrize("more", [[], ["--part-seconds", "0.001"]], ids=["group", "part"])
def test_interrupt_of_a_wait_for_the_writer_keeps_the_rows(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    file = tmp_path / "orders.parquet"
    wait = _copy._Parts._wait
    calls = itertools.count(1)

    def interrupted(self: _copy._Parts) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        wait(self)

    with pytest.MonkeyPatch.context() as patch:
        limit(patch)
        patch.setattr(_copy._Parts, "_wait", interrupted)
        assert run(cluster, "orders", "--to", file, *more) == 130
    assert run(cluster, "orders", "--to", file) == 0
    assert "going on after" in capsys.readouterr().err
    assert rows_of(file) == expected(cluster)


def test_copy_does_not_import_pandas(cluster: Cluster, tmp_path: Path) -> None:
    words = ["copy", "orders", "--to", str(tmp_path / "a.parquet")]
    words += ["--bootstrap-servers", cluster.bootstrap_servers]
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    code = f"from kohort.cli import main; raise SystemExit(main({words}))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def limit(patch: pytest.MonkeyPatch) -> None:
    """Let a poll return half of the records, so that there are several parts."""
    patch.setattr(_copy, "GROUP_BYTES", 1)
    poll = kohort.KafkaConsumer.poll_batches
    patch.setattr(
        kohort.KafkaConsumer,
        "poll_batches",
        lambda self, timeout_ms: poll(self, timeout_ms, max_records=300),
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["absent"], "topic 'absent' does not exist"),
        (["orders", "--from", "yesterday"], "no target"),
    ],
)
@pytest.mark.cases(2)
def test_errors_of_newcomers_are_one_line(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    error: str,
) -> None:
    assert run(cluster, *words, "--to", tmp_path / "a.parquet") == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert error in err
    assert not list(tmp_path.iterdir())


def test_complete_file_is_not_overwritten(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.arrow"
    file.write_text("mine")
    assert run(cluster, "orders", "--to", file) == 1
    assert "exists" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_parts_of_another_topic_are_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_copy._Parts, "finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(cluster, "orders", "--to", file) == 130
    assert run(cluster, "empty", "--to", file) == 1
    assert "has parts of topic 'orders'" in capsys.readouterr().err


def test_other_kinds_of_files_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["copy", "orders", "--to", "orders.csv"])
    assert caught.value.code == 2
    assert "ends in .parquet or .arrow" in capsys.readouterr().err
