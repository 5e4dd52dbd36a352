"""The decoder that is in use: ``_batch`` compiled where that was built, the plain module elsewhere.

``KOHORT_PURE=1`` in the environment keeps to the plain one. A compiled module that was built from
another state of its source (in an editable installation that was edited) is not used.
"""

from __future__ import annotations

import importlib
import os
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.records import _batch

if TYPE_CHECKING:
    from kohort.records._batch import Scan, decode_records, read_plain, scan

__all__ = ["COMPILED", "SOURCES", "Scan", "decode_records", "read_plain", "scan", "source_state"]

SOURCES = ("_batch.py", "_batch_c.pxd", "_native.h")


def source_state(folder: Path) -> int:
    """A number that tells one state of the compiled module's source from another; 0 without it."""
    state = 0
    for name in SOURCES:
        path = folder / name
        if not path.exists():
            return 0
        state = zlib.crc32(path.read_bytes(), state)
    return state


def _choose() -> Any:
    if os.environ.get("KOHORT_PURE") == "1":
        return _batch
    try:
        compiled = importlib.import_module("kohort.records._batch_c")
    except ImportError:
        return _batch
    state = source_state(Path(__file__).parent)
    if state and compiled.built_from() != state:
        warnings.warn(
            "kohort's compiled decoder was built from another state of its source and is not used: "
            "install kohort again (pip install -e .), or set KOHORT_PURE=1",
            RuntimeWarning,
            stacklevel=2,
        )
        return _batch
    return compiled


_module = _choose()
COMPILED: bool = _module is not _batch
"""Whether the compiled module is in use."""

if not TYPE_CHECKING:
    Scan = _module.Scan
    decode_records = _module.decode_records
    read_plain = _module.read_plain
    scan = _module.scan
