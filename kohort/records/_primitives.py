"""Memory operations of the decoder in plain Python. Compiled modules use ``_native.h`` instead.

``_record_decoder.py``, ``_columns.py``, ``_iteration.py`` and ``_message.py`` import all names of
this module by ``*``. The compiled modules have functions under the same names instead, which their
``.pxd`` files declare.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kohort.records._record import ConsumerRecord, Headers, Origin, Record, RecordDraft
from kohort.records.codecs._compression import Bytes
from kohort.records.codecs._crc32c import checksum

__all__ = [
    "HEADERS",
    "KEY",
    "OFFSET",
    "ORIGIN",
    "PARTITION",
    "TIMESTAMP",
    "TOPIC",
    "VALUE",
    "build_state",
    "change_class",
    "checksum",
    "clear_bit",
    "copy",
    "cut",
    "fields_at",
    "fill_ints",
    "filled",
    "freed_as_records",
    "int16_at",
    "int32_at",
    "int64_at",
    "ints",
    "longs",
    "new_record",
    "next_step",
    "octets",
    "part_of",
    "prepare",
    "prepare_locks",
    "prepare_messages",
    "prepare_steps",
    "put_lock",
    "put_marks",
    "put_part",
    "released",
    "repeat",
    "set_bits",
    "short_at",
    "start_of",
    "uint32_at",
    "unpack",
    "use_clock",
    "use_decompressors",
    "window",
    "wrapped",
]

TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS, ORIGIN = range(8)
"""Parts of a record for part_of() and put_part()."""

T = TypeVar("T")
_NAMES = "topic", "partition", "offset", "timestamp", "key", "value", "headers", "_origin"
_GETTERS = tuple(getattr(ConsumerRecord, name).__get__ for name in _NAMES)
_SETTERS = tuple(getattr(ConsumerRecord, name).__set__ for name in _NAMES)
_set_class = object.__dict__["__class__"].__set__
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def prepare(record_type: type[Any] | None = None) -> None:
    """Prepare the module. It is called once, before all other functions."""


def prepare_steps() -> None:
    """Prepare iteration. It is called once, before all other functions of iteration."""


def prepare_messages(record_type: type[Any]) -> None:
    """Prepare messages. It is called once, before all other functions of messages."""


def part_of(record: ConsumerRecord[Any, Any], part: int) -> Any:
    """Return a part of a record whose class may hide the attribute."""
    return _GETTERS[part](record)


def put_part(record: ConsumerRecord[Any, Any], part: int, value: object) -> None:
    """Replace a part of a record."""
    _SETTERS[part](record, value)


def change_class(records: list[Any], message_type: type[Any]) -> None:
    """Change the class of each record to a subclass without slots."""
    deque(map(_set_class, records, itertools.repeat(message_type)), 0)


def put_lock(records: list[Any], message_type: type[Any], lock: object) -> None:
    """Add a lock to the origin of each record, and change its class."""
    plain: object = None
    shared: tuple[Any, ...] = ()
    for record in records:
        if (origin := record._origin) is not plain:
            plain, shared = origin, (*origin, lock)
        _SETTERS[ORIGIN](record, shared)
    change_class(records, message_type)


def prepare_locks(lock_type: type[Any]) -> None:
    """Prepare for locks of this class. It is called once, before put_marks()."""


def put_marks(records: tuple[Any, ...], owner: object, mark: int) -> bool:
    """Return False, because plain Python needs the owner's lock to check and mark in one step."""
    return False


def freed_as_records(message_type: type[T]) -> type[T]:
    """Return the class, because plain Python frees all instances in the same way."""
    return message_type


def use_clock(run: Any, clock: Callable[[], float]) -> None:
    """Have ``run.clock()`` return the time of this clock."""
    run.clock = clock


def next_step(iterator: Any) -> Coroutine[Any, Any, Record]:
    """Return the awaitable of an asynchronous iterator's next record."""
    step: Coroutine[Any, Any, Record] = iterator._step()
    return step


def build_state() -> int:
    """Return the state of the compiled source, which is 0 here."""
    return 0


def int16_at(data: Bytes, pos: int) -> int:
    """Return the big-endian number of two bytes at ``pos``. The caller checks the size."""
    return int(_INT16.unpack_from(data, pos)[0])


def int32_at(data: Bytes, pos: int) -> int:
    return int(_INT32.unpack_from(data, pos)[0])


def uint32_at(data: Bytes, pos: int) -> int:
    return int(_INT32.unpack_from(data, pos)[0]) & 0xFFFF_FFFF


def int64_at(data: Bytes, pos: int) -> int:
    return int(_INT64.unpack_from(data, pos)[0])


def window(data: Bytes, start: int, stop: int) -> bytes:
    """Return a part of the bytes for slices. The compiled module does not copy."""
    return bytes(data[start:stop])


def cut(data: bytes, start: int, stop: int) -> bytes:
    """Return a part of a window()."""
    return data[start:stop]


def longs(view: memoryview) -> memoryview:
    """Return bytes as numbers of 64 bits. The compiled result is an unchecked pointer."""
    return view.cast("q")


def ints(view: memoryview) -> memoryview:
    return view.cast("i")


def octets(view: memoryview) -> memoryview:
    return view


def start_of(data: Bytes) -> Bytes:
    """Return the bytes. The compiled result is an unchecked pointer."""
    return data


def copy(
    target: memoryview, to: int, room: int, source: Bytes, start: int, end: int, size: int
) -> None:
    """Copy bytes. The caller checks the room.

    The compiled module may copy up to 16 bytes, if the target's ``room`` and the source's ``end``
    allow it.
    """
    target[to : to + size] = source[start : start + size]


def repeat(target: memoryview, to: int, source: bytes, count: int) -> None:
    """Write ``count`` copies of a string."""
    target[to : to + len(source) * count] = source * count


def fill_ints(target: memoryview, start: int, stop: int, first: int, step: int) -> None:
    """Write numbers that start with ``first`` and grow by ``step``."""
    if step:
        numbers = array("i", range(first, first + step * (stop - start), step))
    else:
        numbers = array("i", [first]) * (stop - start)
    target[start:stop] = memoryview(numbers)


def set_bits(target: memoryview, start: int, stop: int) -> None:
    """Set bits, and the bits after them in the last byte."""
    if start < stop:
        target[start >> 3] |= 0xFF & -1 << (start & 7)
        first, last = (start + 7) >> 3, (stop + 7) >> 3
        target[first:last] = b"\xff" * (last - first)


def clear_bit(target: memoryview, at: int) -> None:
    target[at >> 3] &= ~(1 << (at & 7))


def fields_at(
    data: Bytes, pos: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Return the fields of the record at ``pos``, in bytes that end at ``end``.

    These are the end of the record, the raw zigzag delta of its timestamp, and the delta of its
    offset. The position and the size of the key follow, those of the value, the position of the
    headers and their number. A size of -1 is null. The end is -1 if anything is wrong; headers are
    not checked.
    """
    raw, pos = short_at(data, pos, end)
    stop = pos + (raw >> 1)
    if pos < 0 or raw & 1 or stop > end:
        return _WRONG
    pos += 1
    if pos < stop and data[pos] < 0x80:
        time = data[pos]
        pos += 1
    else:
        time, pos = _number_at(data, pos, stop, 63, 0x01)
    delta, pos = short_at(data, pos, stop) if pos >= 0 else (0, -1)
    key, key_pos = short_at(data, pos, stop) if pos >= 0 else (0, -1)
    key_size = -1 if key == 1 else key >> 1
    if key_pos < 0 or delta & 1 or (key & 1 and key != 1) or key_size > stop - key_pos:
        return _WRONG
    value, value_pos = short_at(data, key_pos + key_size if key_size > 0 else key_pos, stop)
    value_size = -1 if value == 1 else value >> 1
    if value_pos < 0 or (value & 1 and value != 1) or value_size > stop - value_pos:
        return _WRONG
    pos = value_pos + value_size if value_size > 0 else value_pos
    if pos < stop and not data[pos]:
        return stop, time, delta >> 1, key_pos, key_size, value_pos, value_size, pos + 1, 0
    raw, pos = short_at(data, pos, stop)
    if pos < 0 or raw & 1 or (raw >> 1) > (stop - pos) // 2:
        return _WRONG
    return stop, time, delta >> 1, key_pos, key_size, value_pos, value_size, pos, raw >> 1


_WRONG = (-1, 0, 0, 0, 0, 0, 0, 0, 0)


def short_at(data: Bytes, pos: int, stop: int) -> tuple[int, int]:
    """Return a raw zigzag number of at most 32 bits in at most 5 bytes, and the position after it.

    The position is -1 if the number is longer or does not end before ``stop``.
    """
    if pos + 1 < stop:
        raw = data[pos]
        if raw < 0x80:
            return raw, pos + 1
        high = data[pos + 1]
        if high < 0x80:
            return raw & 0x7F | high << 7, pos + 2
    return _number_at(data, pos, stop, 28, 0x0F)


def _number_at(data: Bytes, pos: int, stop: int, last_shift: int, last_max: int) -> tuple[int, int]:
    raw = shift = 0
    while pos < stop and shift <= last_shift:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == last_shift and byte > last_max:
                break
            return raw, pos
        shift += 7
    return 0, -1


def use_decompressors(lz4: int, zstd: int, create: int, release: int) -> None:
    """Do nothing, because plain Python does not call C functions by address."""


def unpack(codec: int, data: Bytes, start: int, stop: int, scratch: bytearray | memoryview) -> int:
    """Decompress LZ4 or zstd into the scratch and return the size.

    Return -1 if :mod:`kohort.records.codecs._decompress` has to do it, which is always true here.
    Return ``-1 - n`` if the scratch needs ``n`` bytes.
    """
    return -1


def wrapped(base: int, raw: int) -> int:
    """Return the sum with a zigzag number, wrapped to 64 bits as Java does."""
    return (base + ((raw >> 1) ^ -(raw & 1)) + (1 << 63)) % (1 << 64) - (1 << 63)


def released(function: Callable[..., T], *args: Any) -> T:
    """Call the function. The compiled module calls it without the interpreter's lock."""
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
    """Return a record of the bytes at these positions. A size of -1 is null."""
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
    draft.__class__ = ConsumerRecord  # type: ignore[assignment]
    return draft
