"""Both decoders, the plain module and the compiled one, for tests that have to pass on each."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

from kohort.records import _batch, _set, _split

REQUIRED = os.environ.get("KOHORT_REQUIRE_REAL") == "1"
NAMES = ("pure", "compiled")


def decoder_named(name: str) -> ModuleType:
    """The module; skips the test where it could not be compiled."""
    if name == "pure":
        return _batch
    try:
        return importlib.import_module("kohort.records._batch_c")
    except ImportError as error:
        if REQUIRED:
            raise
        pytest.skip(f"kohort is installed without its compiled module: {error}")


@pytest.fixture(params=NAMES)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The decoder that is in use during the test."""
    module = decoder_named(request.param)
    monkeypatch.setattr(_split, "decode_records", module.decode_records)
    monkeypatch.setattr(_set, "read_plain", module.read_plain)
    monkeypatch.setattr(_set, "scan", module.scan)
    return module
