"""Source of kohort as syntax trees, with the imports of each module, and the pages of docs/."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.public_names import FOLDER

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [page for page in PAGES if page.parent != FOLDER]
"""Pages for both readers. The others are lists of names, which the site replaces by docstrings."""


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def part(self) -> str:
        """Package or module directly under kohort that it belongs to. "" for kohort itself."""
        return self.name.partition(".")[2].partition(".")[0]

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield every absolute dotted name that the module imports, with its line.

        Imports inside functions and under TYPE_CHECKING count: they are dependencies too.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno

    def _base(self, node: ast.ImportFrom) -> str:
        """Return the absolute name that ``from ... import`` starts at."""
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        if self.path.name != "__init__.py":
            package.pop()
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *filter(None, [node.module])])


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return all modules of the package, ordered by name."""
    found = []
    for path in sorted((ROOT / "kohort").rglob("*.py")):
        names = path.relative_to(ROOT).with_suffix("").parts
        if names[-1] == "__init__":
            names = names[:-1]
        text = path.read_text()
        found.append(Module(".".join(names), path, ast.parse(text), len(text.splitlines())))
    return tuple(found)


def run(code: str) -> str:
    """Return the output of a new process, in which a warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
