"""Command ``python -m kohort.config docs/configuration.md``, which updates the option tables."""

from __future__ import annotations

import sys
from pathlib import Path

from kohort.config import replace_tables

if __name__ == "__main__":
    page: Path = Path(sys.argv[1])
    page.write_text(replace_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
