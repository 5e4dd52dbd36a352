"""XXH3, a hash of 64 bits, with seed 0 and the default secret.

Kafka hashes a few hundred bytes for each change of a topic, so plain Python is fast enough here.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX_1, _MX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_SHORT, _MIDDLE = 128, 240
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // 8


def xxh3_64(data: bytes) -> int:
    """Return the hash of at least 4 bytes, as an unsigned number."""
    size = len(data)
    if size <= 8:
        return _hash_to_8(data)
    if size <= 16:
        return _hash_to_16(data)
    if size <= _SHORT:
        return _hash_to_128(data)
    if size <= _MIDDLE:
        return _hash_to_240(data)
    return _hash_long(data)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    """Return the two halves of a product of 128 bits, combined by exclusive or."""
    product = left * right
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _MX_1 & _MASK
    return value ^ value >> 32


def _hash_to_8(data: bytes) -> int:
    size = len(data)
    keyed = _u32(data, size - 4) + (_u32(data, 0) << 32) & _MASK
    keyed ^= _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
    rotated = (keyed << 49 | keyed >> 15) ^ (keyed << 24 | keyed >> 40)
    value = (keyed ^ rotated & _MASK) * _MX_2 & _MASK
    value = (value ^ (value >> 35) + size) * _MX_2 & _MASK
    return value ^ value >> 28


def _hash_to_16(data: bytes) -> int:
    size = len(data)
    low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
    high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "big"), "little")
    return _avalanche(size + swapped + high + _fold(low, high) & _MASK)


def _mix_16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(
        _u64(data, at) ^ _u64(_SECRET, secret_at),
        _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8),
    )


def _hash_to_128(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for number in range((size - 1) // 32 + 1):
        total += _mix_16(data, 16 * number, 32 * number)
        total += _mix_16(data, size - 16 * (number + 1), 32 * number + 16)
    return _avalanche(total & _MASK)


def _hash_to_240(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for number in range(8):
        total += _mix_16(data, 16 * number, 16 * number)
    total = _avalanche(total & _MASK)
    for number in range(8, size // 16):
        total += _mix_16(data, 16 * number, 16 * (number - 8) + 3)
    total += _mix_16(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _hash_long(data: bytes) -> int:
    size = len(data)
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    full_stripes = (size - 1) // _STRIPE
    for number in range(full_stripes):
        in_block = number % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, number * _STRIPE, 8 * in_block)
        if in_block == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = size * _P64_1
    for number in range(4):
        total += _fold(
            lanes[2 * number] ^ _u64(_SECRET, 11 + 16 * number),
            lanes[2 * number + 1] ^ _u64(_SECRET, 19 + 16 * number),
        )
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values = struct.unpack_from("<8Q", data, at)
    secrets = struct.unpack_from("<8Q", _SECRET, secret_at)
    for lane, (value, secret) in enumerate(zip(values, secrets, strict=True)):
        keyed = value ^ secret
        lanes[lane ^ 1] = lanes[lane ^ 1] + value & _MASK
        lanes[lane] = lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & _MASK


def _scramble(lanes: list[int]) -> None:
    secrets = struct.unpack_from("<8Q", _SECRET, len(_SECRET) - _STRIPE)
    for lane, secret in enumerate(secrets):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ secret) * _P32_1 & _MASK
