"""Mutations of frames: cut, extended, with flipped bits and wrong lengths."""

from __future__ import annotations

import random
import struct

LIES = [
    *(struct.pack(">i", n) for n in (0x7FFFFFFF, -1, -0x80000000, 0x7FFF, 0x00FFFFFF, 1_000_000)),
    b"\x7f\xff",
    *(b"\x80\x80\x04", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"),  # varints
]
"""Values that a length or a count may claim."""


def mutate(frame: bytes, rng: random.Random, start: int = 0) -> bytes:
    """Put one to eight errors into a frame and return it. The bytes before ``start`` stay."""
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(start, len(data)) if len(data) > start else len(data)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                lie = rng.choice(LIES)
                data[at : at + len(lie)] = lie
    return bytes(data)
