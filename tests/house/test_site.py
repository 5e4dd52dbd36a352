"""The documentation site builds without a fault, and its pages read the same on GitHub."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.house._source import PAGES, ROOT, WRITTEN
from tools.public_names import compat_modules, public_modules

# Only environments that are older than the site lack it: the extra "dev" has it.
pytest.importorskip("zensical")

import markdown
from markdown_it import MarkdownIt

from tools.site.docstrings import to_markdown

COUNTED = re.compile(r"<(h[1-6]|li|table|tr|pre|blockquote)\b")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site, built in a folder of this test."""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tools.site", "build", "--output", str(output)]
    command.append("--without-browser")  # it needs npm
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def structure(html: str) -> Counter[str]:
    """Return how often each element of structure is in a page."""
    return Counter(COUNTED.findall(html))


@pytest.mark.long  # the site is built in half a minute
@pytest.mark.timeout(300)
def test_site_has_a_place_for_every_public_name(built: Path) -> None:
    found = set()
    for path in (built / "site" / "reference" / "api").rglob("*.html"):
        found |= set(re.findall(r'id="(kohort[\w.]*)"', path.read_text()))
    names = [
        f"{module.name}.{name}"
        for modules in (public_modules(), compat_modules())
        for module in modules
        for name in module.names
    ]
    assert [name for name in names if name not in found] == []


@pytest.mark.long  # the site is built in half a minute
@pytest.mark.timeout(300)
def test_site_lists_every_page_for_language_models(built: Path) -> None:
    index = (built / "site" / "llms.txt").read_text()
    listed = re.findall(r"\]\(([^)]+)\): \S", index)
    assert [name for name in listed if not (built / "site" / name).is_file()] == []
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES} <= set(listed)
    assert "## From aiokafka" in (built / "site" / "llms-full.txt").read_text()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.cases
def test_page_has_the_same_parts_on_github(page: Path) -> None:
    text = page.read_text()
    site = markdown.Markdown(
        extensions=["tables", "attr_list", "md_in_html", "pymdownx.superfences"]
    )
    github = MarkdownIt("commonmark").enable("table")
    assert structure(site.convert(text)) == structure(github.render(text))


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        ("Return ``{}``.", "Return `{}`."),
        ("Errors of :meth:`poll`.", "Errors of [`poll`][kohort.KafkaConsumer.poll]."),
        ("A :class:`~a.b.Thing` of ours.", "A `Thing` of ours."),
        ("Raises DataError.", "Raises [`DataError`][kohort.errors.DataError]."),
        ("Raises ``DataError``.", "Raises [`DataError`][kohort.errors.DataError]."),
        ("Raises MyDataError.", "Raises MyDataError."),
        ("A ``{key: DataError | None}``.", "A `{key: DataError | None}`."),
        ("A ``list of DataError`` here.", "A `list of DataError` here."),
        ("See docs/types.md.", "See [Types][types]."),
        ("See ``docs/types.md``.", "See [Types][types]."),
        ("So::\n\n    a = ``b``\n\nDone.", "So:\n\n```text\na = ``b``\n```\n\nDone."),
    ],
)
def test_docstring_is_markdown_with_links(docstring: str, shown: str) -> None:
    names = {"poll": "kohort.KafkaConsumer.poll", "DataError": "kohort.errors.DataError"}
    assert to_markdown(docstring, names) == shown
