"""Every test of the records runs on both decoders."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.decoders import decoder

__all__ = ["decoder"]


@pytest.fixture(autouse=True)
def _on_both(decoder: ModuleType) -> None:
    """Have the decoder chosen for each test."""
