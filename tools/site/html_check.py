"""Checks of the built site: links, anchors, pages and requests to other hosts.

The generator checks the links in Markdown. These checks read the HTML, so that they see links that
templates, docstrings and tables of anchors have made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag, urlsplit

_LOADED: Final = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Element -> attribute with an address that a browser requests without a click."""
_REFERENCE: Final = re.compile(r"\]\[(kohort[\w.]*)\]")
"""Markdown of a cross-reference. It is in the text of a page if it was not read as one."""
_NO_REQUEST: Final = {"canonical", "alternate", "prev", "next"}


class _Page(HTMLParser):
    """Addresses, anchors and generated parts of one HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.unresolved: list[str] = []
        self.has_next = False
        self._text: list[str] = []
        self.feed(text)
        self.close()
        self.markup = _REFERENCE.findall("".join(self._text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element refers to."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            self.has_next = self.has_next or "md-footer__link--next" in found.get("class", "")
        if tag == "autoref":
            self.unresolved.append(found.get("identifier", ""))
        address = found.get(_LOADED.get(tag, ""))
        if address and not (tag == "link" and found.get("rel") in _NO_REQUEST):
            self.loaded.append(address)

    def handle_data(self, data: str) -> None:
        """Note the text of the page."""
        self._text.append(data)


@functools.cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def check_site(site: Path, pages: list[str], source: Path) -> list[str]:
    """Return the faults of a built site: ``<page>: <fault>`` each. ``pages`` is the navigation."""
    _read.cache_clear()
    faults = [f"{page}: the page is not in nav of mkdocs.yml" for page in _outside(pages, source)]
    faults += [f"{page}: nav has the page twice" for page in pages if pages.count(page) > 1]
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        faults += [f"{name}: {fault}" for fault in _page_faults(path, site)]
    for page in pages[:-1]:
        if not _read(site / _html(page)).has_next:
            faults.append(f"{page}: the page does not link to the next one")
    return faults


def _outside(pages: Iterable[str], source: Path) -> list[str]:
    written = {path.relative_to(source).as_posix() for path in source.rglob("*.md")}
    return sorted(written - set(pages))


def _html(page: str) -> str:
    stem = page.removesuffix(".md")
    folder = stem.removesuffix("index").rstrip("/") if stem.endswith("index") else stem
    return f"{folder}/index.html".lstrip("/")


def _page_faults(path: Path, site: Path) -> Iterator[str]:
    page = _read(path)
    for name in page.unresolved:
        yield f"the reference to {name} is not resolved"
    for name in page.markup:
        yield f"the text contains Markdown, ][{name}]"
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"the page requests {address} from another host"
    for address in [*page.links, *page.loaded]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or path.name == "404.html":
            continue
        target = _target(path, address, site)
        anchor = unquote(urldefrag(address).fragment)
        if not target.is_file():
            yield f"the link {address} is dead"
        elif anchor and target.suffix == ".html" and anchor not in _read(target).anchors:
            yield f"the anchor of {address} does not exist"


def _target(path: Path, address: str, site: Path) -> Path:
    relative = unquote(urlsplit(address).path)
    if not relative:
        return path
    base = site / relative.lstrip("/") if relative.startswith("/") else path.parent / relative
    return base / "index.html" if base.is_dir() else base
