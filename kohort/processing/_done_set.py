"""The text of a done set: the offsets after the committed one whose records are finished.

The text is ``k1:`` and the base64 form of a bitmap. Bit n stands for the committed offset plus n.
Brokers accept 4,096 characters of metadata, which is a bitmap of 24,556 offsets. Without batches,
which need no done set, a window has at most 20,000. So a done set always fits.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

PREFIX = "k1:"
MAX_LENGTH = 4096
"""Highest number of characters of a text, which is the default limit of brokers."""


def encode_done(base: int, end: int, unfinished: Iterable[int], extra: Iterable[int] = ()) -> str:
    """Return the text for the offsets from ``base`` to ``end`` that are finished, and for others.

    ``unfinished`` are offsets below ``end``, ``extra`` are finished ones from there on. Return ""
    if nothing after ``base`` is finished.
    """
    last = max(extra, default=end - 1)
    if last < base:
        return ""
    bits = bytearray((last - base) // 8 + 1)
    whole, rest = divmod(end - base, 8)
    bits[:whole] = b"\xff" * whole
    if rest:
        bits[whole] = (1 << rest) - 1
    for offset in unfinished:
        at = offset - base
        bits[at >> 3] &= ~(1 << (at & 7))
    for offset in extra:
        at = offset - base
        bits[at >> 3] |= 1 << (at & 7)
    packed = bytes(bits).rstrip(b"\0")
    return PREFIX + base64.b64encode(packed).decode("ascii") if packed else ""


def decode_done(base: int, text: str) -> frozenset[int]:
    """Return the finished offsets of a text; empty for the metadata of other programs."""
    if not text.startswith(PREFIX) or len(text) > MAX_LENGTH:
        return frozenset()
    try:
        packed = base64.b64decode(text[len(PREFIX) :], validate=True)
    except (binascii.Error, ValueError):
        return frozenset()
    return frozenset(
        base + 8 * index + bit for index, byte in enumerate(packed) for bit in _BITS[byte]
    )


_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
