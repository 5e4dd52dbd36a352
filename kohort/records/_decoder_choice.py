"""Choice of the decoder of records and of the iterators: compiled modules or plain ones.

The plain modules are ``_record_decoder`` and ``_iteration``. The compiled ones are used if they
were built.

``KOHORT_PURE=1`` in the environment selects the plain module. A compiled module that was built from
another state of its source is not used, as after an edit of an editable installation.
:mod:`kohort.records.tables._table_decoder_choice` has the same choice for tables, and
:mod:`kohort.records._message_choice` for messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.records._compiled import compiled_module, module_or_reason

if TYPE_CHECKING:
    from kohort.records._iteration import AsyncIteration, RecordRun, SyncIteration, WakeUp
    from kohort.records._record_decoder import Scan, decode_records, read_plain, scan, use_lz4

__all__ = [
    "COMPILED",
    "PLAIN_REASON",
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
    "use_lz4",
]

_rows, _reason = module_or_reason("_record_decoder_c")
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
