"""The most memory that was allocated at once, really, in a process that was started for it.

``heap.c`` stands before malloc(): it counts what the interpreter takes (``PYTHONMALLOC=malloc``),
Arrow (its system pool), and the libraries in C and Rust. What is asked for counts, touched or
not. Where it cannot be had (another C library, no compiler), tracemalloc counts what the
interpreter takes alone.
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


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process whose memory is to be counted; builds what that takes."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or platform.libc_ver()[0] != "glibc":
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
    """Bytes: how many more there were at the worst moment, and those of the largest piece."""

    peak: int
    largest: int


class Heap:
    """What this process takes from begin() to end()."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None)
        self.is_whole = hasattr(process, "kohort_heap_begin")
        """All memory counts, not the interpreter's alone."""
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
        """The largest piece is known as the peak alone where not all memory counts."""
        if self.is_whole:
            return Taken(self._peak(), self._largest())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return Taken(peak, peak)
