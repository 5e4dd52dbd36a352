"""Types of fields, as annotations that mypy reads as plain Python types."""

from __future__ import annotations

from typing import Annotated

Buffer = bytes | bytearray | memoryview
"""Anything that holds bytes."""

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
UInt16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
UInt32 = Annotated[int, "uint32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
String = Annotated[str, "string"]
Uuid = Annotated[bytes, "uuid"]
"""16 bytes, most significant first. :data:`ZERO_UUID` means none."""
Bytes = Annotated[Buffer, "bytes"]
"""Bytes, decoded as a memoryview of the frame without a copy."""
Records = Annotated[Buffer, "records"]
"""A run of record batches, decoded as a memoryview of the frame without a copy."""

ZERO_UUID = bytes(16)

STRUCT_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Letters of the types of fixed width in :mod:`struct`."""
