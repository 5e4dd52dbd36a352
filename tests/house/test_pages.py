"""Pages of docs/: their links, their order and their place in the navigation of the site."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house._source import PAGES, ROOT, WRITTEN
from tools.public_names import FOLDER

TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
GUIDES = ("Tutorial", "How-to", "Explanation")
"""Sections of pages that are read in their order."""
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1", re.DOTALL | re.MULTILINE)


def navigation() -> list[tuple[str, str]]:
    """Return section and path of each page in mkdocs.yml."""
    pytest.importorskip("griffe")
    from tools.site.staging import pages_of, read_configuration

    return pages_of(read_configuration()["nav"])


def anchors_on_github(text: str) -> set[str]:
    """Return the anchors of the headings of a page by GitHub's rule, and those set by hand."""
    found: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} (.*)$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found[re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")] += 1
    again = {f"{name}-{n}" for name, count in found.items() for n in range(1, count)}
    return found.keys() | again | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", [*TOP, *WRITTEN], ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.cases
def test_links_of_a_page_lead_somewhere_on_github(page: Path) -> None:
    dead = []
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            dead.append(path)
        elif anchor and target.parent != FOLDER:
            if anchor not in anchors_on_github(target.read_text()):
                dead.append(f"{path}#{anchor}")
    assert dead == []


def test_every_page_is_once_in_the_navigation() -> None:
    pages = [page for _, page in navigation()]
    assert [page for page, count in Counter(pages).items() if count > 1] == []
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES} <= set(pages)


def test_next_page_of_the_text_is_that_of_the_navigation() -> None:
    """The site has a link at the foot of each page. On GitHub the text has it."""
    wrong = []
    for (section, page), (_, following) in itertools.pairwise(navigation()):
        source = ROOT / "docs" / page
        text = source.read_text() if source.exists() else ""
        named = re.search(r"^Next: \[[^\]]+\]\(([^)#]+)", text, re.MULTILINE)
        if named is not None and named[1] != os.path.relpath(following, Path(page).parent):
            wrong.append(f"{page}: {named[1]} is not {following}")
        if named is None and section in GUIDES:
            wrong.append(f"{page} has no line that begins with Next")
    assert wrong == []


def test_generated_files_are_up_to_date() -> None:
    for extra in ("griffe", "pyspark"):
        pytest.importorskip(extra)
    from tools.generate import stale

    assert [str(path.relative_to(ROOT)) for path, _ in stale()] == [], (
        "run: python -m tools.generate"
    )
