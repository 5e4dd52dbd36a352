"""A fixture that runs every test of the records on both decoders."""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from kohort.errors import UnsupportedCodecError
from kohort.records.codecs._compression import optional_cramjam
from tests.support.decoders import decoder

__all__ = ["decoder"]

NEEDS = {
    "aiokafka": ("test_consumer_record.py", "test_encode.py", "test_legacy.py"),
    "lz4": ("test_compression.py", "test_missing_libraries.py", "test_unpacking.py"),
    "pyarrow": ("test_capsules.py", "test_column_access.py"),
}
"""Names of files by the package that they need, for which some systems have no wheel."""
collect_ignore = [
    path
    for package, names in NEEDS.items()
    if not find_spec(package)
    for path in Path(__file__).parent.rglob("test_*.py")
    if path.name in names
]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test of the codecs that only cramjam has, where it is not installed."""
    try:
        return (yield)
    except UnsupportedCodecError:
        if optional_cramjam() is None:
            pytest.skip("cramjam is not installed")
        raise


@pytest.fixture(autouse=True)
def _on_both(decoder: ModuleType) -> None:
    """The decoder of each test."""
