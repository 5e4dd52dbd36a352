"""``kohort spark-compile``: compiled modules in the archive of PySpark, added and removed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kohort.cli import main

MODULES = {
    "pyspark/__init__.py": "",
    "pyspark/worker.py": "answer = 42\n",
    "pyspark/tests/test_worker.py": "",
    "pyspark/py.typed": "",
}
COMPILED = {"pyspark/__init__.pyc", "pyspark/worker.pyc"}
IMPORTED = "import pyspark.worker as w; print(w.__file__.rpartition('.')[2], w.answer)"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"
    path.parent.mkdir(parents=True)
    write(path, MODULES)
    path.chmod(0o640)
    return path


def write(path: Path, modules: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, text in modules.items():
            new.writestr(name, text)


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as found:
        return set(found.namelist())


def imported(path: Path) -> str:
    """Import a module of the archive in a new process. Return its kind of file and its value."""
    command = [sys.executable, "-S", "-c", IMPORTED]
    environment = {"PYTHONPATH": str(path)}
    return subprocess.run(
        command, env=environment, check=True, text=True, capture_output=True, timeout=60
    ).stdout.strip()


def test_python_takes_compiled_modules_from_the_archive(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(archive) == "py 42"
    assert main(["spark-compile", "--archive", str(archive)]) == 0
    assert "2 modules compiled for Python" in capsys.readouterr().out
    assert names(archive) == set(MODULES) | COMPILED
    assert imported(archive) == "pyc 42"
    assert archive.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]


def test_changed_source_wins_over_its_compiled_module(archive: Path) -> None:
    main(["spark-compile", "--archive", str(archive)])
    with zipfile.ZipFile(archive) as found:
        stale = {name: found.read(name) for name in COMPILED}
    write(archive, MODULES | {"pyspark/worker.py": "answer = 43\n"})
    with zipfile.ZipFile(archive, "a") as target:
        for name, content in stale.items():
            target.writestr(name, content)
    assert imported(archive) == "py 43"


def test_second_call_replaces_the_compiled_modules(archive: Path) -> None:
    for _ in range(2):
        assert main(["spark-compile", "--archive", str(archive)]) == 0
    with zipfile.ZipFile(archive) as found:
        assert sorted(found.namelist()) == sorted(set(MODULES) | COMPILED)
    assert imported(archive) == "pyc 42"


def test_undo_removes_the_compiled_modules(archive: Path) -> None:
    main(["spark-compile", "--archive", str(archive)])
    assert main(["spark-compile", "--undo", "--archive", str(archive)]) == 0
    with zipfile.ZipFile(archive) as found:
        assert {name: found.read(name).decode() for name in found.namelist()} == MODULES
    assert imported(archive) == "py 42"


def test_output_leaves_the_archive_as_it_was(archive: Path, tmp_path: Path) -> None:
    before = archive.read_bytes()
    output = tmp_path / "compiled.zip"
    assert main(["spark-compile", "--archive", str(archive), "--output", str(output)]) == 0
    assert archive.read_bytes() == before
    assert imported(output) == "pyc 42"


def test_archive_of_spark_home_is_compiled_when_none_is_named(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(archive.parents[2]))
    assert main(["spark-compile"]) == 0
    assert names(archive) >= COMPILED


def test_installed_pyspark_archive_compiles_without_spark_home(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive.parents[2] / "__init__.py").touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(str(archive.parents[3]))
    assert main(["spark-compile"]) == 0
    assert names(archive) >= COMPILED


def test_missing_archive_is_reported_with_the_option_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert main(["spark-compile"]) == 1
    assert "does not exist. Name the archive by --archive" in capsys.readouterr().err


def test_file_that_is_no_archive_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pyspark.zip"
    path.write_text("text")
    assert main(["spark-compile", "--archive", str(path)]) == 1
    assert "not a zip file" in capsys.readouterr().err
    assert path.read_text() == "text"
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_folder_is_reported_with_the_option(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = archive.parent / "missing" / "pyspark.zip"
    assert main(["spark-compile", "--archive", str(archive), "--output", str(output)]) == 1
    assert "write another archive by --output" in capsys.readouterr().err


def test_compiled_archive_of_pyspark_has_its_streaming_modules(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    output = tmp_path / "pyspark.zip"
    assert main(["spark-compile", "--output", str(output)]) == 0
    runner = "pyspark/sql/streaming/python_streaming_source_runner.py"
    assert {runner, f"{runner}c"} <= names(output)
