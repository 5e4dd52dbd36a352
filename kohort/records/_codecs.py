"""Library of the compression codecs, imported when the first batch needs it.

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
    """Return the library of snappy, lz4 and zstd. Raises UnsupportedCodecError."""
    try:
        return importlib.import_module("cramjam")
    except ImportError as error:
        raise UnsupportedCodecError(
            "batches compressed with snappy, lz4 and zstd cannot be read or written here, because "
            f"the package 'cramjam' cannot be imported: {error}. Install it with 'pip install "
            "cramjam', use the main interpreter, or gzip or no compression"
        ) from error


@functools.cache
def optional_cramjam() -> Any:
    """Return the library, or None if it cannot be imported. It is faster than zlib at gzip."""
    try:
        return cramjam()
    except UnsupportedCodecError:
        return None


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the imported library for data that it cannot decompress."""
    plain = (zlib.error, RuntimeError)
    # While another thread imports it, the module exists without its contents.
    found = getattr(sys.modules.get("cramjam"), "DecompressionError", None)
    return plain if found is None else (found, *plain)
