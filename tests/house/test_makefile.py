"""Choice of a virtual environment by the Makefile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house._source import ROOT
from tools.quick import SEEDS, quick_tests, steps

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
INHERITED = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHON", "VENV"}
"""Variables by which ``make test`` would pass its own choice on."""
THIS = f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Checkout without environments. Its ``bin`` is the first folder of PATH."""
    for name in ("Makefile", "constraints", "pyproject.toml", "setup.py", "kohort", "browser"):
        (tmp_path / name).symlink_to(ROOT / name)
    python(tmp_path / "bin" / "python3", THIS)
    return tmp_path


def python(path: Path, version: str) -> Path:
    """Write a program that prints this version for any arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def make(
    checkout: Path, *arguments: str, target: str = "test", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``make --dry-run`` with the target."""
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    kept["PATH"] = f"{checkout / 'bin'}:{kept['PATH']}"
    command = ["make", "--dry-run", target, *arguments]
    return subprocess.run(
        command,
        cwd=checkout,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def environment_of(checkout: Path, *arguments: str, **environment: str) -> str:
    """Return the folder of the environment in which the tests would run."""
    done = make(checkout, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    folder: str
    [folder] = set(re.findall(r"^(\S+)/bin/python -m pytest", done.stdout, re.MULTILINE))
    return folder


def test_environment_is_dot_venv_when_no_python_is_named(checkout: Path) -> None:
    assert environment_of(checkout) == ".venv"


def test_environment_is_dot_venv_when_version_is_the_same(checkout: Path) -> None:
    same = python(checkout / "same", THIS)
    assert environment_of(checkout, f"PYTHON={same}") == ".venv"
    assert environment_of(checkout, PYTHON=str(same)) == ".venv"


def test_environment_is_separate_when_version_differs(checkout: Path) -> None:
    other, third = python(checkout / "other", "3.98"), python(checkout / "third", "3.99t")
    assert environment_of(checkout, f"PYTHON={other}") == ".venv-3.98"
    assert environment_of(checkout, PYTHON=str(third)) == ".venv-3.99t"
    assert environment_of(checkout) == ".venv"


def test_environment_is_separate_when_python3_has_changed(checkout: Path) -> None:
    python(checkout / ".venv" / "bin" / "python", "3.98")
    assert environment_of(checkout, "PYTHON=python3") == f".venv-{THIS}"
    assert environment_of(checkout, f"PYTHON={python(checkout / 'old', '3.98')}") == ".venv"


def test_environment_is_the_named_one_when_venv_is_given(checkout: Path) -> None:
    other = python(checkout / "other", "3.98")
    assert environment_of(checkout, "VENV=mine", f"PYTHON={other}") == "mine"


def test_make_stops_when_python_cannot_be_run(checkout: Path) -> None:
    done = make(checkout, "PYTHON=no-such-python")
    assert done.returncode != 0
    assert "PYTHON='no-such-python' cannot be run" in done.stderr


def test_docs_install_python_for_the_browser_unless_left_out(checkout: Path) -> None:
    assert "npm install" in make(checkout, target="docs").stdout
    without = make(checkout, "ARGS=--without-browser", target="docs").stdout
    assert "npm" not in without and "tools.site build --without-browser" in without


def test_quick_runs_its_six_steps(checkout: Path) -> None:
    assert ".venv/bin/python -m tools.quick -x" in make(checkout, "ARGS=-x", target="quick").stdout
    names = [step.name for step in steps()]
    assert names == ["ruff check", "ruff format", "prose", "mypy", "pytest", "seeds"]
    assert str(SEEDS) in steps()[-1].command
    assert steps(["-x"])[4].command[-1] == "-x"


def test_quick_names_tests_that_exist() -> None:
    assert [name for name in quick_tests() if not (ROOT / name).exists()] == []


def test_slow_tests_are_listed_once_and_exist() -> None:
    listed = (ROOT / "tests" / "slow.txt").read_text().split()
    assert listed == sorted(set(listed))
    for entry in listed:
        file, *_, name = entry.split("::")
        text = (ROOT / file).read_text()
        assert name == "runTest" or f"def {name}(" in text, entry


def test_longest_files_are_listed_once_and_exist() -> None:
    listed = (ROOT / "tests" / "longest.txt").read_text().split()
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not (ROOT / name).is_file()] == []
