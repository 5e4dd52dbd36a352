"""Everything in this folder is other people's software against kohort."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("interop")
