"""Workflow files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house._source import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINTERS = {
    "actionlint": ["-no-color", *map(str, WORKFLOWS)],
    "zizmor": ["--offline", "--no-progress", "--min-severity=low", str(ROOT / ".github")],
}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_its_actions_and_keeps_no_credentials(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert "\npermissions: {}\n" in text
    assert "secrets." not in text


@pytest.mark.parametrize("name", LINTERS)
def test_workflows_pass_the_linter(name: str) -> None:
    program = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    done = subprocess.run(
        [program, *LINTERS[name]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_test_and_build_each_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    listed = re.findall(pattern, "\n".join(project["project"]["classifiers"]))
    matrices = re.findall(r"python: \[(.*)\]", (WORKFLOWS[0].parent / "tests.yml").read_text())
    tested = sorted(each for matrix in matrices for each in re.findall(r"[\d.]+t?", matrix))
    built = project["tool"]["cibuildwheel"]["build"].split()
    assert [each for each in tested if not each.endswith("t")] == listed
    assert [f"cp{each.replace('.', '')}-*" for each in tested] == built
