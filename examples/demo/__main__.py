"""Command ``python -m examples.demo``, which is ``kohort demo``."""

from __future__ import annotations

import sys

from kohort.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
