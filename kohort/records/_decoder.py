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
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kohort.records import _batch, _columns
from kohort.records._columns import ALL_FIT, NO_ROOM, WRONG

if TYPE_CHECKING:
    from kohort.records._batch import Scan, decode_records, read_plain, scan
    from kohort.records._columns import Columns, Lack, take_body, take_plain, use_lz4

__all__ = [
    "ALL_FIT",
    "COMPILED",
    "NO_ROOM",
    "SOURCES",
    "WRONG",
    "Columns",
    "Lack",
    "Scan",
    "capsules",
    "decode_records",
    "read_plain",
    "scan",
    "source_state",
    "take_body",
    "take_plain",
    "use_lz4",
]

SOURCES = (
    "_record.py",
    "_batch.py",
    "_batch_c.pxd",
    "_columns.py",
    "_columns_c.pxd",
    "_capsule_c.pyx",
    "_capsule.h",
    "_native.h",
    "_native.pxd",
)


def source_state(folder: Path) -> int:
    """A number that tells one state of the compiled modules' source from another; 0 without it."""
    state = 0
    for name in SOURCES:
        path = folder / name
        if not path.exists():
            return 0
        state = zlib.crc32(path.read_bytes(), state)
    return state


def _choose() -> tuple[Any, Any, Any]:
    plain: tuple[ModuleType, ModuleType, None] = _batch, _columns, None
    if os.environ.get("KOHORT_PURE") == "1":
        return plain
    try:
        compiled = (
            importlib.import_module("kohort.records._batch_c"),
            importlib.import_module("kohort.records._columns_c"),
            importlib.import_module("kohort.records._capsule_c"),
        )
    except ImportError:
        return plain
    state = source_state(Path(__file__).parent)
    if state and any(module.built_from() != state for module in compiled):
        warnings.warn(
            "kohort's compiled decoder was built from another state of its source and is not used: "
            "install kohort again (pip install -e .), or set KOHORT_PURE=1",
            RuntimeWarning,
            stacklevel=2,
        )
        return plain
    return compiled


_rows, _tables, capsules = _choose()
COMPILED: bool = _rows is not _batch
"""Whether the compiled modules are in use."""

if not TYPE_CHECKING:
    Scan, decode_records, read_plain, scan = (
        _rows.Scan,
        _rows.decode_records,
        _rows.read_plain,
        _rows.scan,
    )
    Columns, Lack, use_lz4 = _tables.Columns, _tables.Lack, _tables.use_lz4
    take_body, take_plain = _tables.take_body, _tables.take_plain
