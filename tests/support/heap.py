"""Peak of allocated memory in a process that was started to be measured.

``heap.c`` replaces malloc(). It counts the interpreter with ``PYTHONMALLOC=malloc``, Arrow with its
system pool, and the libraries in C and Rust. Requested memory counts, whether it was touched or
not. Without it (another C library, no compiler, AddressSanitizer, which replaces malloc(), too)
tracemalloc counts the interpreter alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tracemalloc
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("heap.c")
IS_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose memory is counted. Build what that requires."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or IS_SANITIZED or platform.libc_ver()[0] != "glibc":
        return {**os.environ}
    library = folder / "heap.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


class Taken(NamedTuple):
    """Bytes at the peak above those at the start, and bytes of the largest allocation."""

    peak: int
    largest: int


class Heap:
    """Memory that this process takes from begin() to end()."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None)
        self.is_whole = hasattr(process, "kohort_heap_begin")
        """True if all memory counts and not only the interpreter's."""
        if self.is_whole:
            self._begin = process.kohort_heap_begin
            self._peak, self._largest = process.kohort_heap_peak, process.kohort_heap_largest
            self._peak.restype = self._largest.restype = ctypes.c_longlong

    def begin(self) -> None:
        if self.is_whole:
            self._begin()
        else:
            tracemalloc.start()

    def end(self) -> Taken:
        """Return what was taken. Without ``heap.c`` the peak stands for the largest allocation,
        too.
        """
        if self.is_whole:
            return Taken(self._peak(), self._largest())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return Taken(peak, peak)
