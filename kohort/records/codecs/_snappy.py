"""Real size of a raw snappy block, because the size in its first bytes is unverified."""

from __future__ import annotations


def snappy_size(block: bytes | memoryview) -> int:
    """Return the bytes that the elements of a block make, fewer if it ends too early."""
    data = bytes(block)
    total = pos = 0
    try:
        while data[pos] & 0x80:
            pos += 1
        pos += 1
        while True:
            tag = data[pos]
            kind, length = tag & 3, tag >> 2
            if kind == 0:  # a literal
                if length >= 60:
                    width = length - 59
                    length = int.from_bytes(data[pos + 1 : pos + 1 + width], "little")
                    pos += width
                total += length + 1
                pos += length + 2
            elif kind == 1:  # a copy of earlier bytes, as the other kinds
                total += (length & 7) + 4
                pos += 2
            else:
                total += length + 1
                pos += 3 if kind == 2 else 5
    except IndexError:
        return total
