"""A package index in a folder, as PEP 503 describes it: pip installs from it without a network."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterable
from pathlib import Path


def write_index(folder: Path, files: Iterable[Path]) -> str:
    """Write an index of wheels and source distributions. Return its address for pip."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    projects: dict[str, list[Path]] = {}
    for path in sorted(files):
        projects.setdefault(_project(path), []).append(path)
    for name, paths in projects.items():
        links = [f'<a href="{path.as_uri()}">{html.escape(path.name)}</a><br>' for path in paths]
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(_page(links))
    links = [f'<a href="{name}/">{name}</a><br>' for name in projects]
    (folder / "index.html").write_text(_page(links))
    return folder.as_uri()


def _project(path: Path) -> str:
    """Return the normalized name of the project that a file belongs to."""
    name = path.name.rpartition("-")[0] if path.suffix == ".gz" else path.name.partition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _page(links: list[str]) -> str:
    return "\n".join(["<!DOCTYPE html>", "<html><body>", *links, "</body></html>", ""])
