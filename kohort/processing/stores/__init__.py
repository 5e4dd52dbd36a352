"""Stores of results and offsets in one transaction, for process()."""

from __future__ import annotations

from typing import Any, TypeAlias

from kohort.errors import ConfigurationError
from kohort.processing.stores._delta import DeltaOffsets, DeltaSession
from kohort.processing.stores._iceberg import IcebergOffsets, IcebergSession
from kohort.processing.stores._session import StoredOffset, StoreSession
from kohort.processing.stores._sql import SqlOffsets, SqlSession
from kohort.processing.stores._steps import Handover, Steps, await_steps, run_steps

OffsetStore: TypeAlias = SqlOffsets | DeltaOffsets | IcebergOffsets

__all__ = [
    "DeltaOffsets",
    "Handover",
    "IcebergOffsets",
    "OffsetStore",
    "SqlOffsets",
    "Steps",
    "StoreSession",
    "StoredOffset",
    "await_steps",
    "is_store",
    "open_session",
    "run_steps",
]


def is_store(value: Any) -> bool:
    """True for a value of ``process(offsets=)``."""
    return isinstance(value, SqlOffsets | DeltaOffsets | IcebergOffsets)


def open_session(store: OffsetStore, group: str, *, is_async: bool) -> StoreSession:
    """Return the use of a store by one call of process()."""
    if isinstance(store, SqlOffsets):
        return SqlSession(store, group, is_async=is_async)
    if is_async:
        raise ConfigurationError(
            f"process(offsets={type(store).__name__}(...)) needs a plain function as handler, "
            "which runs in a thread, because the library blocks. Use 'def'"
        )
    try:
        if isinstance(store, DeltaOffsets):
            return DeltaSession(store, group)
        return IcebergSession(store, group)
    except ImportError as error:
        extra = "delta" if isinstance(store, DeltaOffsets) else "iceberg"
        raise ImportError(
            f"{type(store).__name__} needs the module {error.name}: pip install 'kohort[{extra}]'"
        ) from error
