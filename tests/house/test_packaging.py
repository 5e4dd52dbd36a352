"""Files that describe the project agree with each other."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

import kohort
from kohort.records._compiled import SOURCES
from kohort.transport.network import _poller
from tests.house._source import ROOT

TOML = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TOML["project"]
PINS = (ROOT / "constraints" / "pins.txt").read_text()


def normal(requirement: str) -> str:
    """Return the comparable name of the distribution in a requirement or a pin."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def run_setup(folder: Path, *arguments: str, **variables: str) -> None:
    """Run setup.py with more variables. Its metadata go into the folder."""
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(folder)]
    environment = os.environ | variables
    subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=60,
        capture_output=True,
    )


def test_one_version_everywhere() -> None:
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"] == importlib.metadata.version("kohort")
    assert kohort.__version__ == PROJECT["version"]


def test_dependencies_are_pinned_to_one_version_without_address() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *chain.from_iterable(PROJECT["optional-dependencies"].values()),
    ]
    lines = [line for line in PINS.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert {normal(name) for name in wanted} <= {normal(line) for line in lines}


def test_the_source_distribution_has_all_that_is_compiled(tmp_path: Path) -> None:
    run_setup(tmp_path, "sdist", "--dist-dir", str(tmp_path))
    [packed] = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        packed_names = archive.getnames()
    for package, sources in ("records", SOURCES), ("transport", _poller.SOURCES):
        packed_sources = {Path(name).name for name in packed_names if f"/{package}/" in name}
        assert set(sources) <= packed_sources


def test_make_compiles_again_after_each_change_of_a_compiled_source() -> None:
    printed = subprocess.run(
        ["make", "--print-data-base", "--question", "help"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    found = re.search(r"^PACKAGING := (.+)$", printed, re.MULTILINE)
    assert found is not None
    for folder, sources in ("records", SOURCES), ("transport/network", _poller.SOURCES):
        assert {f"kohort/{folder}/{name}" for name in sources} <= set(found[1].split())


@pytest.mark.long  # builds a release twice
def test_source_distribution_is_the_same_when_built_twice(tmp_path: Path) -> None:
    # The tree has generated C files once kohort was compiled, and a source distribution has not.
    built = []
    for number in range(2):
        folder = tmp_path / str(number)
        variables = {"SOURCE_DATE_EPOCH": "1700000000", "USER": str(number)}
        run_setup(tmp_path, "sdist", "--dist-dir", str(folder), KOHORT_PURE="1", **variables)
        [packed] = folder.glob("*.tar.gz")
        built.append(packed.read_bytes())
        os.utime(tmp_path / "kohort.egg-info" / "PKG-INFO", (number, number))
    assert built[0] == built[1]
    with tarfile.open(packed) as archive:
        members = archive.getmembers()
    assert {(each.mtime, each.uid, each.uname) for each in members} == {(1_700_000_000, 0, "")}


def test_wheel_has_the_packages_alone(tmp_path: Path) -> None:
    command = ("build", "--build-base", str(tmp_path / "build"), "bdist_wheel")
    folders = ("--dist-dir", str(tmp_path), "--bdist-dir", str(tmp_path / "wheel"))
    run_setup(tmp_path, *command, *folders, KOHORT_PURE="1")
    [packed] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(packed) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    packages = {"kohort", "pyspark_kohort", "pytest_kohort"}
    assert {name for name in tops if not name.endswith(".dist-info")} == packages


def test_links_of_the_shown_readme_are_absolute(tmp_path: Path) -> None:
    run_setup(tmp_path, KOHORT_PURE="1")
    [metadata] = tmp_path.glob("*.egg-info/PKG-INFO")
    shown = email.message_from_string(metadata.read_text())
    links = re.findall(r"\]\(([^)]+)\)", str(shown.get_payload()))
    written = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    tree = f"{PROJECT['urls']['Repository']}/blob/v{PROJECT['version']}/"
    assert shown["Description-Content-Type"] == "text/markdown"
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert [link.removeprefix(tree) for link in links] == written


def test_workflows_test_and_build_each_python_of_the_classifiers() -> None:
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    listed = re.findall(pattern, "\n".join(PROJECT["classifiers"]))
    matrices = re.findall(
        r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    )
    tested = sorted(each for matrix in matrices for each in re.findall(r"[\d.]+t?", matrix))
    built = TOML["tool"]["cibuildwheel"]["build"].split()
    assert [each for each in tested if not each.endswith("t")] == listed
    assert [f"cp{each.replace('.', '')}-*" for each in tested] == built
