"""A fixture that runs every test of the records on both decoders."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.decoders import decoder

__all__ = ["decoder"]


@pytest.fixture(autouse=True)
def _on_both(decoder: ModuleType) -> None:
    """The decoder of each test."""
