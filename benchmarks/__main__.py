"""Command ``python -m benchmarks [NAME [OPTIONS]]``: all measurements in turn, or one of them.

Each runs in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Return the exit status: that of the last measurement that failed, else 0."""
    found = [path.stem for path in sorted(Path(__file__).parent.glob("[!_]*.py"))]
    names, options = (arguments[:1], arguments[1:]) if arguments else (found, [])
    if unknown := set(names).difference(found):
        print(f"unknown names {', '.join(unknown)}, known are {', '.join(found)}")
        return 2
    status = 0
    for name in names:
        print(f"\n== {name}", flush=True)
        module = f"{__package__}.{name}"
        status = (
            subprocess.run([sys.executable, "-m", module, *options], check=False).returncode
            or status
        )
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
