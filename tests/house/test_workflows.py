"""Workflow files. The workflow ``lint`` runs actionlint and zizmor on them."""

from __future__ import annotations

import re
import tomllib

from tests.house._source import ROOT


def test_workflows_test_and_build_each_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    listed = re.findall(pattern, "\n".join(project["project"]["classifiers"]))
    matrices = re.findall(
        r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    )
    tested = sorted(each for matrix in matrices for each in re.findall(r"[\d.]+t?", matrix))
    built = project["tool"]["cibuildwheel"]["build"].split()
    assert [each for each in tested if not each.endswith("t")] == listed
    assert [f"cp{each.replace('.', '')}-*" for each in tested] == built
