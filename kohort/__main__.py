"""Entry point of ``python -m kohort``."""

from __future__ import annotations

import sys

from kohort.cli import main

if __name__ == "__main__":
    sys.exit(main())
