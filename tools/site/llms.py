"""Pages of the site as plain text for language models: llms.txt and llms-full.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.site.staging import DOCS, ROOT

LEFT_OUT: Final = "Internals"
"""Section of pages about the code of kohort, which llms-full.txt does not have."""
MODULES: Final = "reference/api/"
"""Folder of the pages of modules."""

_HEAD: Final = """\
# kohort

> kohort is a Python client library for Kafka consumer groups, synchronous, asynchronous and for
> Spark. `kohort.testing` has a Kafka cluster that runs in your process.
"""


def write_texts(pages: Iterable[tuple[str, str]], source: Path, site: Path) -> None:
    """Write both files and the Markdown of each page, which llms.txt links to."""
    index, full, section = [_HEAD], [_HEAD], ""
    for part, page in pages:
        # The pages of modules are directives in the source, and lists of names in docs/.
        folder = ROOT / DOCS if page.startswith(MODULES) else source
        text = (folder / page).read_text(encoding="utf-8")
        target = site / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if part != section:
            section = part
            index.append(f"\n## {part}\n\n")
        index.append(f"- [{_title(text)}]({page}): {_first_sentence(text)}\n")
        if part != LEFT_OUT:
            full.append(f"\n<!-- {page} -->\n\n{text}")
    (site / "llms.txt").write_text("".join(index), encoding="utf-8")
    (site / "llms-full.txt").write_text("".join(full), encoding="utf-8")


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ").strip()


def _first_sentence(text: str) -> str:
    for paragraph in text.split("\n\n")[1:]:
        if not paragraph.startswith(("#", "|", "<", "`", ":", "-")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=\.)\s", plain, maxsplit=1)[0]
    return "Reference of the module."
