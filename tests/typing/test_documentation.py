"""Programs of the pages and the examples pass mypy --strict and pyright."""

from __future__ import annotations

import re

import pytest

from tests.support.snippets import EXAMPLES, FRAGMENTS, PAGES, python_blocks
from tests.typing.checkers import Finding, Program, run_mypy, run_pyright

pytestmark = [pytest.mark.typing, pytest.mark.timeout(400)]

CHECKED = [
    *(page.name for page in PAGES if page.name not in FRAGMENTS and any(python_blocks(page))),
    *(example.name for example in EXAMPLES),
]


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Finding]]:
    """Errors by page or example. Each checker runs once, because starting takes most time."""
    folder = tmp_path_factory.mktemp("programs")
    texts = {(each.name, 1): each.read_text() for each in EXAMPLES}
    for page in PAGES:
        if page.name in CHECKED:
            texts |= {(page.name, line): code for line, code in python_blocks(page)}
    programs: dict[str, list[Program]] = {name: [] for name in CHECKED}
    for (name, line), code in texts.items():
        path = folder / f"{re.sub('[^a-z0-9]', '_', name.lower())}_{line}.py"
        path.write_text(code)
        programs[name].append(Program(path))
    given = [each for group in programs.values() for each in group]
    errors = run_mypy(given) | run_pyright(given)
    return {
        name: {error for each in group for error in errors if error.file == each.name}
        for name, group in programs.items()
    }


@pytest.mark.parametrize("name", sorted(CHECKED))
@pytest.mark.cases
def test_programs_of_a_page_have_no_type_errors(name: str, found: dict[str, set[Finding]]) -> None:
    assert found[name] == set()
