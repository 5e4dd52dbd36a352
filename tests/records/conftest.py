"""A fixture that runs every test of the records on both decoders."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

import pytest

from tests.support.decoders import decoder

__all__ = ["decoder"]

NEEDS = {
    "aiokafka": ("test_consumer_record.py", "test_encode.py", "test_legacy.py"),
    "lz4": ("test_compression.py", "test_missing_libraries.py", "test_unpacking.py"),
    "pyarrow": ("test_capsules.py", "test_column_access.py"),
}
"""Files by the package that they need, for which some systems have no wheel."""
collect_ignore = [name for package in NEEDS if not find_spec(package) for name in NEEDS[package]]


@pytest.fixture(autouse=True)
def _on_both(decoder: ModuleType) -> None:
    """The decoder of each test."""
