"""What the decoder does to memory: in plain Python here, in C (``_native.h``) where it is compiled.

``_batch.py`` imports all names of this module by ``*``. In the compiled module the functions that
``_batch_c.pxd`` declares under the same names stand in their place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar, cast

from kohort.records._crc import crc32c
from kohort.records._record import ConsumerRecord, Headers, Origin, Record, RecordDraft

__all__ = [
    "build_state",
    "checksum",
    "copy",
    "cut",
    "filled",
    "int16_at",
    "int32_at",
    "int64_at",
    "new_record",
    "next_step",
    "prepare",
    "prepare_steps",
    "released",
    "uint32_at",
    "unpack",
    "use_clock",
    "use_decompressors",
    "window",
    "wrapped",
]

T = TypeVar("T")
Bytes: TypeAlias = bytes | bytearray | memoryview
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def prepare(record_type: type[Any] | None = None) -> None:
    """Called once, before anything else."""


def prepare_steps() -> None:
    """Called once, before anything else of iteration."""


def use_clock(run: Any, clock: Callable[[], float]) -> None:
    """Have ``run.clock()`` give the time of this clock."""
    run.clock = clock


def next_step(iterator: Any) -> Coroutine[Any, Any, Record]:
    """Return the awaitable of an asynchronous iterator's next record."""
    step: Coroutine[Any, Any, Record] = iterator._step()
    return step


def build_state() -> int:
    """The state of the source that was compiled; 0 here."""
    return 0


def int16_at(data: Bytes, pos: int) -> int:
    """The big-endian number of two bytes at ``pos``; the caller knows that they are there."""
    return int(_INT16.unpack_from(data, pos)[0])


def int32_at(data: Bytes, pos: int) -> int:
    return int(_INT32.unpack_from(data, pos)[0])


def uint32_at(data: Bytes, pos: int) -> int:
    return int(_INT32.unpack_from(data, pos)[0]) & 0xFFFF_FFFF


def int64_at(data: Bytes, pos: int) -> int:
    return int(_INT64.unpack_from(data, pos)[0])


def checksum(data: Bytes, start: int, stop: int) -> int:
    """CRC-32C of a part of the bytes."""
    return crc32c(memoryview(data)[start:stop])


def window(data: Bytes, start: int, stop: int) -> bytes:
    """A part of the bytes, of which slices can be taken: compiled, without a copy."""
    return bytes(data[start:stop])


def cut(data: bytes, start: int, stop: int) -> bytes:
    """A part of a window()."""
    return data[start:stop]


def copy(target: memoryview, to: int, source: Bytes, start: int, size: int) -> None:
    """Copy bytes to where the caller knows that there is room."""
    target[to : to + size] = source[start : start + size]


def use_decompressors(lz4: int, zstd: int, create: int, release: int) -> None:
    """Do nothing: C cannot be called by its address from here."""


def unpack(codec: int, data: Bytes, start: int, stop: int, scratch: bytearray | memoryview) -> int:
    """Decompress LZ4 or zstd into the scratch and return the size.

    -1 if :mod:`kohort.records._decompress` has to do it, which is always so here. ``-1 - n`` if the
    scratch needs ``n`` bytes.
    """
    return -1


def wrapped(base: int, raw: int) -> int:
    """The sum with a zigzag number in 64 bits: Java writes and reads timestamps so."""
    return (base + ((raw >> 1) ^ -(raw & 1)) + (1 << 63)) % (1 << 64) - (1 << 63)


def released(function: Callable[..., T], *args: Any) -> T:
    """Call the function: compiled, without the interpreter's lock."""
    return function(*args)


filled = released


def new_record(
    topic: str,
    partition: int,
    origin: Origin,
    data: bytes,
    key_at: int,
    key_size: int,
    value_at: int,
    value_size: int,
    offset: int,
    timestamp: int,
    headers: Headers,
    sizes: tuple[int, int, int] | None,
) -> Record:
    """A record of the bytes at these places; a size of -1 is null."""
    draft: RecordDraft[bytes, bytes] = RecordDraft()
    draft.topic = topic
    draft.partition = partition
    draft.offset = offset
    draft.timestamp = timestamp
    draft.key = data[key_at : key_at + key_size] if key_size >= 0 else None
    draft.value = data[value_at : value_at + value_size] if value_size >= 0 else None
    draft.headers = headers
    draft._origin = origin
    draft._sizes = sizes
    draft.__class__ = ConsumerRecord
    return cast("Record", draft)
