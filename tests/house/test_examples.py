"""The examples run offline, each in a separate process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.snippets import EXAMPLES, run_python


def marks(example: Path) -> list[pytest.MarkDecorator]:
    """Return marks for what an example needs beyond kohort, from its imports."""
    return [pytest.mark.spark] if "pyspark" in example.read_text() else []


@pytest.mark.parametrize(
    "example", [pytest.param(path, id=path.name, marks=marks(path)) for path in EXAMPLES]
)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    run_python(example.read_text(), tmp_path, timeout_s=200 if marks(example) else 150)
