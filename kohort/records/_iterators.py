"""Choice of the iterators, which are compiled if the decoder of records is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.records._decoder import COMPILED, compiled_module

if TYPE_CHECKING:
    from kohort.records._iteration import AsyncIteration, RecordRun, SyncIteration, WakeUp

__all__ = ["AsyncIteration", "RecordRun", "SyncIteration", "WakeUp"]

if not TYPE_CHECKING:
    _steps = compiled_module("_iteration_c") if COMPILED else None
    if _steps is None:
        from kohort.records import _iteration as _steps
    WakeUp, RecordRun = _steps.WakeUp, _steps.RecordRun
    SyncIteration, AsyncIteration = _steps.SyncIteration, _steps.AsyncIteration
