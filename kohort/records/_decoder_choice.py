"""Choice of the decoder of records and of the iterators: compiled modules or plain ones.

The plain modules are ``_record_decoder`` and ``_iteration``. The compiled ones are used if they
were built.

``KOHORT_PURE=1`` in the environment selects the plain module. A compiled module that was built from
another state of its source is not used, as after an edit of an editable installation.
:mod:`kohort.records.tables._table_decoder_choice` has the same choice for tables, and
:mod:`kohort.records._message_choice` for messages.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.records._iteration import AsyncIteration, RecordRun, SyncIteration, WakeUp
    from kohort.records._record_decoder import Scan, decode_records, read_plain, scan, use_lz4

__all__ = [
    "COMPILED",
    "PLAIN_REASON",
    "SOURCES",
    "AsyncIteration",
    "RecordRun",
    "Scan",
    "SyncIteration",
    "WakeUp",
    "compiled_module",
    "decode_records",
    "decoder_choice",
    "read_plain",
    "scan",
    "source_state",
    "use_lz4",
]

SOURCES = (
    "_record.py",
    "_record_decoder.py",
    "_record_decoder_c.pxd",
    "_columns.py",
    "_columns_c.pxd",
    "_capsule_c.pyx",
    "_capsule.h",
    "_iteration.py",
    "_iteration_c.pxd",
    "_message.py",
    "_message_c.pxd",
    "_step.h",
    "_native.h",
    "_native.pxd",
    "_unpack.h",
)


@functools.cache
def source_state(folder: Path, sources: tuple[str, ...]) -> int:
    """Return a checksum of the source of the compiled modules, or 0 without the source."""
    state = 0
    for name in sources:
        path = folder / name
        if not path.exists():
            return 0
        state = zlib.crc32(path.read_bytes(), state)
    return state


def compiled_module(
    name: str, package: str = "kohort.records", sources: tuple[str, ...] = SOURCES
) -> Any:
    """Return a compiled module of a package, or None if the plain one must be used.

    ``sources`` are the files in the folder of the package that it was compiled from.
    """
    return _module_or_reason(name, package, sources)[0]


def _module_or_reason(name: str, package: str, sources: tuple[str, ...]) -> tuple[Any, str]:
    """Return a compiled module, or None with the reason why it is not used."""
    if os.environ.get("KOHORT_PURE") == "1":
        return None, "KOHORT_PURE=1 is set"
    full_name = f"{package}.{name}"
    try:
        compiled = importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name == full_name:
            return None, "this installation has no compiled modules"
        return None, f"{full_name} cannot be imported: {error}"
    except ImportError as error:
        return None, f"{full_name} cannot be imported: {error}"
    state = source_state(Path(str(compiled.__file__)).parent, sources)
    if state and compiled.built_from() != state:
        warnings.warn(
            f"{full_name} was built from another state of its source and is not used: "
            "install kohort again (pip install -e .), or set KOHORT_PURE=1",
            RuntimeWarning,
            stacklevel=3,
        )
        return None, f"{full_name} was built from another state of its source"
    return compiled, ""


_rows, _reason = _module_or_reason("_record_decoder_c", "kohort.records", SOURCES)
COMPILED: bool = _rows is not None
"""True if the compiled module is in use."""
PLAIN_REASON: str | None = _reason or None
"""Reason why the plain modules are in use, or None."""


def decoder_choice() -> str:
    """Return ``compiled``, or ``plain`` with the reason."""
    return "compiled" if COMPILED else f"plain, because {PLAIN_REASON}"


if not TYPE_CHECKING:
    if not COMPILED:
        from kohort.records import _record_decoder as _rows
    Scan, decode_records, read_plain, scan, use_lz4 = (
        _rows.Scan,
        _rows.decode_records,
        _rows.read_plain,
        _rows.scan,
        _rows.use_lz4,
    )
    _steps = compiled_module("_iteration_c") if COMPILED else None
    if _steps is None:
        from kohort.records import _iteration as _steps
    WakeUp, RecordRun = _steps.WakeUp, _steps.RecordRun
    SyncIteration, AsyncIteration = _steps.SyncIteration, _steps.AsyncIteration
