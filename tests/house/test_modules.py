"""Modules are small, and no machine or registry is named."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house._source import ROOT, modules
from tools.prose import project_files

MAX_LINES = 700
REGISTRY = re.compile(r"\bpypi\b|pythonhosted|repo1?\.maven|mvnrepository|npmjs|proxy\.golang")
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:root|home|work|Users)/\w")
SUFFIXES = {".py", ".md", ".toml", ".txt", ".json", ".pxd", ".pyx", ".h", ".typed"}


def test_modules_are_small() -> None:
    sizes = {module.name: module.lines for module in modules()}
    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}


def test_no_registry_and_no_machine_is_named() -> None:
    found = [
        f"{path}:{number}: {match[0]}"
        for path in project_files()
        if path.suffix in SUFFIXES or len(path.parts) == 1 or path == Path(".ci/run")
        if ROOT / path != Path(__file__)
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1)
        if (match := REGISTRY.search(line) or MACHINE_PATH.search(line))
    ]
    assert found == []
