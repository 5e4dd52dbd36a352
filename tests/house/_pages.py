"""The pages of ``docs/``."""

from __future__ import annotations

from tests.house._source import ROOT
from tools.public_names import FOLDER

PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [page for page in PAGES if page.parent != FOLDER]
"""Pages for both readers. The others are lists of names, which the site replaces by docstrings."""
