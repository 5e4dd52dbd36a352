"""Pages that the site is built from: a copy of docs/, with pages of other folders added.

The pages in docs/ link to other files of the repository, such as the changelog, by relative paths.
In the copy these links lead to a page of the site, so that one text serves both readers. The pages
of modules are lists of names in docs/. In the copy they have the directives of mkdocstrings.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from browser.bundle import PLACE
from tools.public_names import FOLDER
from tools.site.api_pages import directives

ROOT: Final = Path(__file__).parents[2]
OUTPUT: Final = ROOT / "build" / "docs"
DOCS: Final = "docs"
BROWSER: Final = "browser"
"""Folder of an output with the files that ``browser.bundle`` writes."""
OUTSIDE: Final = {
    "CHANGELOG.md": "internals/changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/security-policy.md",
    "browser/README.md": "internals/browser.md",
    "browser/assets": "assets/browser",
    "benchmarks/results": "internals/benchmarks",
}
"""Files and folders of the repository that are on the site, and their places there."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1", re.DOTALL | re.MULTILINE)
_RUN = re.compile(r"^<!-- run -->$", re.MULTILINE)
_RUN_PLACE: Final = '<div class="live-run"></div>'
"""Place of the buttons of the block of code that follows. browser/assets/example.js."""


def stage(output: Path = OUTPUT) -> Path:
    """Write the pages and the configuration of a build. Return the path of the configuration."""
    pages = output / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    places = dict(_places())
    for path, place in places.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(_with_links(path, place, places), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    if (output / BROWSER).is_dir():
        shutil.copytree(output / BROWSER, pages / PLACE)
    for name, text in directives():
        (pages / FOLDER.relative_to(ROOT / DOCS) / name).write_text(text, encoding="utf-8")
    configuration = output / "mkdocs.yml"
    configuration.write_text(yaml.safe_dump(_configuration(), sort_keys=False), encoding="utf-8")
    return configuration


def _places() -> Iterable[tuple[Path, str]]:
    """Yield each file of the site and its place there."""
    for path in sorted((ROOT / DOCS).rglob("*")):
        if path.is_file():
            yield path, path.relative_to(ROOT / DOCS).as_posix()
    for source, place in OUTSIDE.items():
        path = ROOT / source
        if path.is_file():
            yield path, place
        for each in sorted(path.glob("*")):
            yield each, f"{place}/{each.name}"


def _with_links(path: Path, place: str, places: dict[Path, str]) -> str:
    """Return a page whose links to files lead to their places on the site."""

    def moved(found: re.Match[str]) -> str:
        target = (path.parent / found[1]).resolve()
        if target not in places:
            return found[1]  # the build reports it as a dead link
        return os.path.relpath(places[target], Path(place).parent)

    parts, end = [], 0
    text = _RUN.sub(_RUN_PLACE, path.read_text(encoding="utf-8"))
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(moved, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])])


def _configuration() -> dict[str, Any]:
    """Return mkdocs.yml for the copied pages."""
    found: dict[str, Any] = read_configuration()
    found |= {"docs_dir": "pages", "site_dir": "site"}
    for plugin in found["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    return found


def read_configuration() -> dict[str, Any]:
    """Return mkdocs.yml."""
    with (ROOT / "mkdocs.yml").open(encoding="utf-8") as file:
        found: dict[str, Any] = yaml.safe_load(file)
        return found


def pages_of(nav: Iterable[Any]) -> list[tuple[str, str]]:
    """Return the section and the path of each page of a navigation, in its order."""
    found: list[tuple[str, str]] = []
    for entry in nav:
        [(title, inner)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(inner, list):
            found += [(section or title, page) for section, page in pages_of(inner)]
        else:
            found.append(("", inner))
    return found
