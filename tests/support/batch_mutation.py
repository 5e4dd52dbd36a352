"""Mutations of record batches and old messages that their checksums do not reveal.

Most of the time, what surrounds a change is corrected: lengths, the CRC, the compression around
changed records, a frame's own checksum. Without these corrections the first check would refuse
everything, and no later check would run.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cramjam
import lz4.frame

from kohort.records import (
    Compression,
    ControlType,
    NewRecord,
    compress,
    crc32c,
    decompress,
    encode_batch,
    end_marker,
)
from kohort.records.codecs._lz4 import header_checksum
from tests.support.mutation import LIES, mutate

DATA = Path(__file__).parents[1] / "data"
LENGTH, CRC, ATTRIBUTES, LAST_DELTA, COUNT, RECORDS = 8, 17, 21, 23, 57, 61
FIELDS = tuple(zip((0, 8, 12, 16, 21, 23, 27, 35, 43, 51, 53, 57), "qiibhiqqqhii", strict=True))
"""Place and layout of each field of a batch header."""
EXTREMES = {
    form: (0, 1, -1, 2, 7, 8, 16, 32, 100, (1 << bits - 1) - 1, -(1 << bits - 1))
    for form, bits in (("b", 8), ("h", 16), ("i", 32), ("q", 64))
}
OVERLONG = (
    b"\x80\x00",
    b"\x81\x80\x00",
    b"\x80" * 4 + b"\x10",
    b"\x80" * 9 + b"\x02",
    b"\x80" * 12,
)
SIZES = (0, 1, 100, 65_536, 1 << 20, 8 << 20, 60 << 20, 64 << 20, 1 << 27, (1 << 31) - 1, 1 << 40)
"""Sizes that a compressed stream may claim to hold."""


class Seed(NamedTuple):
    """Valid data. ``plain`` is its content if it is compressed, ``offsets`` is its number of
    offsets.
    """

    data: bytes
    magic: int
    codec: int
    plain: bytes
    offsets: int


@cache
def seeds() -> tuple[Seed, ...]:
    """Return batches of all kinds and messages of old formats. Some were captured from Apache
    Kafka.
    """
    found = [*_made()]
    for each in json.loads((DATA / "record_batches.json").read_text())["batches"]:
        data = base64.b64decode(each["batch"])
        if len(data) < 8000:
            found.append(_seed(data))
    for each in json.loads((DATA / "old_messages.json").read_text())["logs"]:
        found.append(Seed(bytes.fromhex(each["raw"]), each["magic"], 0, b"", 6))
    for magic in (0, 1):
        for codec in Compression:
            found.append(Seed(_wrapped(_messages(magic), magic, codec), magic, codec, b"", 3))
    return tuple(found)


def _made() -> list[Seed]:
    lots = [
        [NewRecord(1000 + n, b"key %d" % n, b"value %d" % n) for n in range(5)],
        [NewRecord(5, None, None), NewRecord(-7, b"", b""), NewRecord(1 << 61, b"k", None)],
        [NewRecord(9, b"k", b"v", [("name", b"value"), ("none", None)]) for _ in range(3)],
        [NewRecord(9, b"k", b"a sentence that repeats itself, " * 60)],
        [NewRecord(9, None, b"x") for _ in range(60)],
        [],
    ]
    found = []
    for records in lots:
        for codec in Compression:
            found.append(_seed(encode_batch(records, compression=codec)))
            data = encode_batch(
                records,
                compression=codec,
                timestamp_type=1 if codec % 2 else 0,
                producer_id=7,
                producer_epoch=0,
                base_sequence=1,
                transactional=True,
            )
            found.append(_seed(data))
    for kind in ControlType:
        record = end_marker(kind, coordinator_epoch=3, timestamp=9)
        data = encode_batch([record], producer_id=7, transactional=True, control=True)
        found += [_seed(data)] * 3
    sentence = _seed(encode_batch(lots[3], compression=Compression.GZIP)).plain
    plain = sentence * 8
    header = bytearray(encode_batch(lots[3]))
    for number, payload in _framings(plain):
        header[ATTRIBUTES + 1] = number
        struct.pack_into(">i", header, COUNT, 8)
        found.append(Seed(mended(header[:RECORDS] + payload), 2, number, plain, 1))
    return found


def _framings(plain: bytes) -> list[tuple[int, bytes]]:
    """Return the same data in every framing that producers use."""
    found = [(Compression.SNAPPY.value, bytes(cramjam.snappy.compress_raw(plain)))]
    for linked in (False, True):
        for sized in (False, True):
            for options in ({}, {"content_checksum": True}, {"block_checksum": True}):
                packed = lz4.frame.compress(
                    plain, block_linked=linked, store_size=sized, block_size=5, **options
                )
                found.append((Compression.LZ4.value, packed))
    stream = cramjam.zstd.Compressor()
    stream.compress(plain)
    found.append((Compression.ZSTD.value, bytes(stream.flush()) + bytes(stream.finish())))
    return found


def _seed(data: bytes) -> Seed:
    codec = data[ATTRIBUTES + 1] & 7
    plain = decompress(codec, data[RECORDS:]) if len(data) > RECORDS else b""
    count = struct.unpack_from(">i", data, LAST_DELTA)[0] + 1
    return Seed(data, 2, codec, plain, count)


def _message(offset: int, value: bytes | None, magic: int, attributes: int = 0) -> bytes:
    body = struct.pack(">bb", magic, attributes) + struct.pack(">q", 77) * magic
    body += struct.pack(">i", 3) + b"key"
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def _messages(magic: int) -> bytes:
    return b"".join(_message(n, b"value %d" % n, magic) for n in range(3))


def _wrapped(inner: bytes, magic: int, codec: int) -> bytes:
    return _message(2, compress(codec, inner), magic, codec) if codec else inner


def spoilt(seed: Seed, rng: random.Random) -> bytes:
    """Return the data with an error in it. What surrounds the error is corrected
    most of the time.
    """
    if seed.magic < 2:
        return _spoilt_messages(seed, rng)
    data = bytearray(seed.data)
    head, body = data[:RECORDS], bytes(data[RECORDS:])
    kind = rng.randrange(10)
    if kind == 0:
        at, form = rng.choice(FIELDS)
        struct.pack_into(f">{form}", data, at, rng.choice(EXTREMES[form]))
        return bytes(_crc(data)) if rng.random() < 0.9 else bytes(data)
    if kind == 1:
        body = mutate(body, rng) if body else rng.randbytes(20)
    elif kind == 2 and body:
        body = body[: rng.randrange(len(body))]
    elif kind == 3:
        other = rng.choice(seeds())
        body = body[: rng.randrange(len(body) + 1)] + other.data[rng.randrange(len(other.data)) :]
    elif kind <= 5 and seed.codec:
        body = lying(seed.codec, body, rng)
    else:
        plain = _spoilt_records(seed.plain, rng)
        codec = seed.codec if rng.random() < 0.9 else rng.randrange(5)
        head[ATTRIBUTES + 1] = head[ATTRIBUTES + 1] & ~7 | codec
        body = compress(codec, plain) if plain else b""
    data = head + body
    if rng.random() < 0.2:  # and a count that may or may not match what was changed
        struct.pack_into(">i", data, COUNT, rng.choice((0, 1, 2, 5, 60, len(body) // 7, 1 << 20)))
    if rng.random() < 0.1:
        return bytes(data)
    return mended(data)


def _spoilt_records(plain: bytes, rng: random.Random) -> bytes:
    """Return records with a wrong number, a number that is too long, or a piece cut out or
    repeated.
    """
    if not plain:
        return rng.randbytes(30)
    at = rng.randrange(min(len(plain), rng.choice((8, 64, len(plain)))))
    match rng.randrange(6):
        case 0:
            return plain[:at] + rng.choice(OVERLONG) + plain[at + 1 :]
        case 1:
            return plain[:at] + rng.choice(LIES) + plain[at + 1 :]
        case 2:
            return plain[:at] + bytes([plain[at] ^ 1 << rng.randrange(8)]) + plain[at + 1 :]
        case 3:
            until = at + rng.randrange(1, 40)
            return plain[:until] + plain[at:until] * rng.choice((1, 2, 50)) + plain[until:]
        case 4:
            return plain[:at] + plain[at + rng.randrange(1, 20) :]
    return mutate(plain, rng)


def lying(codec: int, body: bytes, rng: random.Random) -> bytes:
    """Return a compressed stream that claims another size than its content has."""
    data = bytearray(body)
    size = rng.choice((*SIZES, 22 * len(body), 255 * len(body), 8 * len(body), len(body)))
    if len(data) < 20:
        return bytes(data)
    if codec == Compression.GZIP:
        data[-4:] = (size & 0xFFFFFFFF).to_bytes(4, "little")
        data[rng.randrange(10)] ^= rng.choice((0, 0, 0, 1, 8, 255))
    elif codec == Compression.SNAPPY and data[:1] == b"\x82":
        data[16:20] = (rng.choice((size, len(data) - 20)) & 0xFFFFFFFF).to_bytes(4)
        if rng.random() < 0.7:
            data[20:22] = _varint(size)
            data[16:20] = (len(data) - 20).to_bytes(4)
    elif codec == Compression.SNAPPY:
        data[: 2 if data[0] > 127 else 1] = _varint(size)
    elif codec == Compression.LZ4:
        _lie_of_lz4(data, size, rng)
    elif codec == Compression.ZSTD:
        _lie_of_zstd(data, size, rng)
    return bytes(data)


def _lie_of_lz4(data: bytearray, size: int, rng: random.Random) -> None:
    end = 14 if data[4] & 8 else 6
    if rng.random() < 0.6:
        data[4] |= 8
        data[6:end] = size.to_bytes(8, "little")
        end = 14
    if rng.random() < 0.5:
        data[5] = rng.choice((0x40, 0x50, 0x60, 0x70))
    if rng.random() < 0.3:
        data[4] ^= rng.choice((4, 16, 32))
    if rng.random() < 0.3:
        at = end + 1
        data[at : at + 4] = rng.choice((0, 1, 0x80000001, 4 << 20, size)).to_bytes(8, "little")[:4]
    data[end] = header_checksum(bytes(data[4:end]))


def _lie_of_zstd(data: bytearray, size: int, rng: random.Random) -> None:
    flags = data[4]
    head = 5 + (0 if flags & 0x20 else 1) + (0, 1, 2, 4)[flags & 3]
    head += (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    blocks = data[head:]
    match rng.randrange(3):
        case 0:  # a window size
            data[4:head] = bytes(
                [flags & 4, rng.choice((0x00, 0x58, 0x70, 0x80, 0x88, 0x8F, 0xFF))]
            )
        case 1:  # a content size, in a single segment
            data[4:head] = bytes([0xE0 | flags & 4]) + size.to_bytes(8, "little")
        case _:  # many blocks of a single byte each
            most, many = rng.choice(((131_072, 1), (30_000, 3)))
            each = (min(size, most) << 3 | 2).to_bytes(3, "little") + b"x"
            data[4:] = bytes([0, rng.choice((0x38, 0x58, 0x88))]) + each * many + blocks


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _spoilt_messages(seed: Seed, rng: random.Random) -> bytes:
    data = seed.data
    if seed.codec and rng.random() < 0.7:
        inner = _messages(seed.magic)
        if rng.random() < 0.5:
            inner = _crcs_of_messages(bytearray(mutate(inner, rng)))
            return _wrapped(inner, seed.magic, seed.codec)
        packed = compress(seed.codec, inner)
        packed = lying(seed.codec, packed, rng) if rng.random() < 0.6 else mutate(packed, rng)
        return _message(2, packed, seed.magic, seed.codec)
    changed = mutate(data, rng) if rng.random() < 0.8 else data[: rng.randrange(len(data))]
    return _crcs_of_messages(bytearray(changed)) if rng.random() < 0.9 else changed


def _crcs_of_messages(data: bytearray) -> bytes:
    """Return messages with correct checksums, up to the first wrong size."""
    pos = 0
    while pos + 17 <= len(data):
        stop = pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], signed=True)
        if not pos + 17 <= stop <= len(data):
            break
        struct.pack_into(">I", data, pos + 12, zlib.crc32(memoryview(data)[pos + 16 : stop]))
        pos = stop
    return bytes(data)


def _crc(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, CRC, crc32c(memoryview(data)[ATTRIBUTES:]))
    return data


def mended(data: bytearray | bytes) -> bytes:
    """Return a batch with its real length and the correct CRC."""
    data = bytearray(data)
    struct.pack_into(">i", data, LENGTH, len(data) - 12)
    return bytes(_crc(data))
