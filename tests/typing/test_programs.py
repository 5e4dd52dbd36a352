"""Right programs pass mypy --strict and pyright. Wrong ones fail at the line that is wrong."""

from __future__ import annotations

import pytest

from tests.typing.checkers import Finding, Program, programs, run_mypy, run_pyright

pytestmark = [pytest.mark.typing, pytest.mark.timeout(400)]

RIGHT, WRONG = programs("right"), programs("wrong")
NEEDED = 30
"""Programs of each kind, at least."""


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def found(checker: str) -> set[Finding]:
    """Errors in all programs. Each checker runs once, because starting takes most of its time."""
    run = run_mypy if checker == "mypy" else run_pyright
    return run([*RIGHT, *WRONG])


def test_there_are_enough_programs() -> None:
    assert min(len(RIGHT), len(WRONG)) >= NEEDED
    assert [each.name for each in WRONG if not each.expected("mypy")] == []
    assert [each.name for each in RIGHT if each.expected("mypy")] == []


@pytest.mark.parametrize("program", RIGHT, ids=lambda each: each.path.stem)
@pytest.mark.cases
def test_right_program_has_no_errors(program: Program, found: set[Finding]) -> None:
    assert [each for each in found if each.file == program.name] == []


@pytest.mark.parametrize("program", WRONG, ids=lambda each: each.path.stem)
@pytest.mark.cases
def test_wrong_program_has_its_error(program: Program, checker: str, found: set[Finding]) -> None:
    assert {each for each in found if each.file == program.name} == program.expected(checker)
