"""Index of the search: the one that Zensical wrote, arranged for readers.

The search puts a match in a title before one in a text. Among equal matches it keeps the order of
the index. It knows no weights, so :func:`arrange_index` changes the index:

- A table row with an anchor becomes an entry, with the anchor as its title. Each option is a row.
- The modules of the reference come after the guides, and those for other clients' programs last.
- Pages about the development of kohort come last, and only with their titles.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

INDEX: Final = "search.json"
INTERNALS: Final = "Internals"
"""Section of the navigation whose pages only their titles find."""
MODULES: Final = "Modules"
"""Part of the navigation with one page for each module."""

COMPAT: Final = "kohort.compat"
"""Package of the modules with the consumers of other clients."""

_ROW: Final = re.compile(r'<tr>\s*<td[^>]*>\s*<a id="([^"]+)"></a>(.*?)</tr>', re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")

Entry = dict[str, Any]


def arrange_index(site: Path) -> None:
    """Rewrite the index of a built site."""
    path = site / INDEX
    index = json.loads(path.read_text(encoding="utf-8"))
    found: list[Entry] = index["items"]
    public = [each for each in found if INTERNALS not in each["path"]]
    hidden = [each for each in found if INTERNALS in each["path"]]
    pages = [each for each in public if "#" not in each["location"]]
    index["items"] = [
        *(row for page in pages for row in _rows(site, page)),
        *sorted(public, key=lambda each: (MODULES in each["path"], COMPAT in each["location"])),
        *({**each, "text": ""} for each in hidden if "#" not in each["location"]),
    ]
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")


def _rows(site: Path, page: Entry) -> Iterator[Entry]:
    """Yield an entry for each table row of a page that has an anchor."""
    text = (site / page["location"] / "index.html").read_text(encoding="utf-8")
    for anchor, cells in _ROW.findall(text):
        words = html.escape(html.unescape(_TAG.sub(" ", cells)), quote=False).split()
        yield {
            **page,
            "location": f"{page['location']}#{anchor}",
            "level": 3,
            "title": anchor,
            "text": f"<p>{' '.join(words)}</p>",
        }
