"""The libraries of the compression codecs, imported when the first batch needs one.

An import costs time, and fails where a library does not support it: in a subinterpreter, for one.
"""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from typing import Any

from kohort.errors import UnsupportedCodecError


@functools.cache
def cramjam() -> Any:
    """The library of snappy, zstd and whole lz4 frames. UnsupportedCodecError without it."""
    return _load("cramjam", "snappy, lz4 and zstd")


@functools.cache
def lz4_frame() -> Any:
    """The library that reads lz4 frames piece by piece. UnsupportedCodecError without it."""
    return _load("lz4.frame", "lz4")


def errors() -> tuple[type[Exception], ...]:
    """The exceptions of the libraries that are in use, for data that they cannot decompress."""
    plain = (zlib.error, RuntimeError)
    # Another thread may be about to import it: it is there then, without its contents.
    found = getattr(sys.modules.get("cramjam"), "DecompressionError", None)
    return plain if found is None else (found, *plain)


def _load(name: str, codecs: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedCodecError(
            f"batches compressed with {codecs} cannot be read or written here: the package "
            f"{name.partition('.')[0]!r} cannot be imported: {error}. Use the main interpreter, or "
            "gzip or no compression"
        ) from error
