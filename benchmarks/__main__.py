"""``python -m benchmarks``: all measurements, one after the other, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """The exit status: that of the last measurement that failed, else 0."""
    status = 0
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        name = f"{__package__}.{path.stem}"
        print(f"\n== {name}", flush=True)
        status = subprocess.run([sys.executable, "-m", name]).returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main())
