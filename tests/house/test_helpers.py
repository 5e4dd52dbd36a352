"""Helpers of the tests live in modules of helpers: no module imports from a ``test_`` module."""

from __future__ import annotations

import re

from tests.house._source import ROOT

FROM_A_TEST = re.compile(r"^\s*(?:from|import) .*\btest_\w+", re.MULTILINE)


def test_nothing_imports_from_a_test_module() -> None:
    """Programs that a test keeps in a string and runs in another process count, too."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for folder in ("tests", "benchmarks", "examples", "tools", "browser")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in FROM_A_TEST.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_an_import_from_a_test_module_is_found() -> None:
    assert FROM_A_TEST.search("    from tests.a.test_b import c\n")
    assert not FROM_A_TEST.search("from tests.a.best_b import c\n# from test_b\n")
