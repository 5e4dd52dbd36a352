"""Code of the pages runs offline, each program in a separate process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house._source import ROOT
from tests.support.snippets import (
    FENCED,
    FRAGMENTS,
    NOT_RUN,
    PAGES,
    is_shown,
    python_blocks,
    run_elsewhere,
    run_python,
    shown_output,
)

BLOCKS = [
    pytest.param(code, shown_output(page, code), id=f"{page.name}:{line}")
    for page in PAGES
    for line, code in python_blocks(page)
    if page.name not in FRAGMENTS
]
RUN_BY = {
    "first-consumer.md": ("tests/house/test_endless_blocks.py", 1),
    "migration.md": ("tests/house/test_endless_blocks.py tests/compat/test_frameworks.py", 6),
    "security.md": ("tests/security/test_page.py", 11),
    "spark.md": ("tests/spark_connector/test_docs.py", 5),
}
"""Pages with blocks that need more than a process: the tests that run them, and their number."""


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
def test_a_block_of_a_page_runs(code: str, shown: str | None, tmp_path: Path) -> None:
    """The block runs, and prints what the page shows after "It prints"."""
    output = run_python(code, tmp_path)
    if shown is not None and not is_shown(output, shown):
        assert output == shown


def test_every_block_of_a_page_is_run_by_a_test() -> None:
    marked = {
        page.name: sum(code.startswith(NOT_RUN) for code in FENCED.findall(page.read_text()))
        for page in PAGES
    }
    assert {page: count for page, count in marked.items() if count} == {
        page: count for page, (_, count) in RUN_BY.items()
    }
    for page in PAGES:
        tests = RUN_BY.get(page.name, ("", 0))[0].split()
        assert all(page.name in (ROOT / test).read_text() for test in tests), page.name
        assert len(run_elsewhere(page)) == marked[page.name], page.name


@pytest.mark.parametrize(
    ("output", "shown", "is_equal"),
    [
        ("1\n2\n", "1\n2\n", True),
        ("1\n2\n", "1\n", False),
        ("1\n2\n3\n", "1\n...\n3\n", True),
        ("1\n2\n3\n", "1\n...\n2\n", False),
        ("b'.'\n", "b'x'\n", False),
    ],
)
def test_shown_output_may_leave_out_lines(output: str, shown: str, is_equal: bool) -> None:
    assert is_shown(output, shown) == is_equal


def test_the_first_block_of_the_readme_is_short_and_prints_what_the_readme_says(
    tmp_path: Path,
) -> None:
    readme = (ROOT / "README.md").read_text()
    _, code = next(python_blocks(ROOT / "README.md"))
    assert len(code.splitlines()) <= 20
    shown = readme.partition(code)[2].partition("```text\n")[2].partition("```")[0]
    assert run_python(code, tmp_path) == shown
