"""Choice of the decoder of tables, which is compiled if the decoder of records is.

The first table imports this module. Most consumers read no table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.records import _columns
from kohort.records._columns import ALL_FIT, NO_ROOM, WRONG
from kohort.records._decoder_choice import COMPILED, compiled_module

if TYPE_CHECKING:
    from kohort.records._columns import (
        Columns,
        MissingRoom,
        extent_of,
        filled_bytes,
        take_body,
        take_plain,
        use_codecs,
    )

__all__ = [
    "ALL_FIT",
    "NO_ROOM",
    "WRONG",
    "Columns",
    "MissingRoom",
    "capsules",
    "extent_of",
    "filled_bytes",
    "take_body",
    "take_plain",
    "use_codecs",
]

capsules: Any = compiled_module("_capsule_c") if COMPILED else None
"""Module that creates Arrow's capsules, or None."""

if not TYPE_CHECKING:
    _tables = (compiled_module("_columns_c") if COMPILED else None) or _columns
    Columns, MissingRoom, use_codecs = _tables.Columns, _tables.MissingRoom, _tables.use_codecs
    extent_of, filled_bytes = _tables.extent_of, _tables.filled_bytes
    take_body, take_plain = _tables.take_body, _tables.take_plain
