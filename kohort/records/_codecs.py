"""Libraries of the compression codecs, imported when the first batch needs one.

An import costs time. It also fails where a library does not support the interpreter, such as a
subinterpreter.
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
    """Return the library of snappy, zstd and whole lz4 frames. Raises UnsupportedCodecError."""
    return _load("cramjam", "snappy, lz4 and zstd")


@functools.cache
def lz4_frame() -> Any:
    """Return the library that reads lz4 frames in steps. Raises UnsupportedCodecError."""
    return _load("lz4.frame", "lz4")


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the imported libraries for data that they cannot decompress."""
    plain = (zlib.error, RuntimeError)
    # While another thread imports it, the module exists without its contents.
    found = getattr(sys.modules.get("cramjam"), "DecompressionError", None)
    return plain if found is None else (found, *plain)


def _load(name: str, codecs: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedCodecError(
            f"batches compressed with {codecs} cannot be read or written here, because the package "
            f"{name.partition('.')[0]!r} cannot be imported: {error}. Use the main interpreter, or "
            "gzip or no compression"
        ) from error
