"""Both decoders, the plain module and the compiled one, for tests that must pass on each."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import pytest

from kohort.records import _columns, _record_batch, _record_decoder, _record_set
from kohort.records.tables import _table

REQUIRED = os.environ.get("KOHORT_REQUIRE_REAL") == "1"
NAMES = ("pure", "compiled")


def decoder_named(name: str) -> ModuleType:
    """Return the module that reads records. Skip the test if it could not be compiled."""
    return _record_decoder if name == "pure" else _compiled("_record_decoder_c")


def columns_named(name: str) -> ModuleType:
    """Return the module that reads columns."""
    return _columns if name == "pure" else _compiled("_columns_c")


def _compiled(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"kohort.records.{name}")
    except ImportError as error:
        if REQUIRED:
            raise
        pytest.skip(f"kohort is installed without its compiled modules: {error}")


def replacements(name: str) -> list[tuple[ModuleType, str, Any]]:
    """Return (module, name, value) for each name to replace so that one decoder is in use."""
    module, columns = decoder_named(name), columns_named(name)
    places: list[tuple[ModuleType, str, Any]] = [
        (_record_batch, "decode_records", module.decode_records),
        (_record_set, "read_plain", module.read_plain),
        (_record_set, "scan", module.scan),
        (_record_set, "use_lz4", module.use_lz4),
    ]
    shared = (
        "Columns",
        "MissingRoom",
        "extent_of",
        "filled_bytes",
        "take_body",
        "take_plain",
        "use_codecs",
    )
    for each in shared:
        places.append((_table, each, getattr(columns, each)))
    return places


def use_decoder(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """Replace both modules by the plain ones or the compiled ones."""
    for module, attribute, value in replacements(name):
        patch.setattr(module, attribute, value)
    return decoder_named(name)


@pytest.fixture(params=NAMES)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Decoder that is in use during the test."""
    return use_decoder(request.param, monkeypatch)
