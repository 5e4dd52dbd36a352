"""Docstrings of kohort as Markdown, for the reference: an extension of griffe.

A docstring of kohort is prose with a few marks of reStructuredText. Code has two backticks, roles
are such as ``:meth:``, and ``::`` comes before a block of code. Public names become links.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from griffe import Alias, Extension, Object

from tools.public_names import ROOT, public_modules, public_places

_ROLE = re.compile(r":(?:\w+:)+`~?([\w.]+)`")
_CODE = re.compile(r"``(.+?)``", re.DOTALL)
_PAGE = re.compile(r"`{0,2}\bdocs/([\w/.-]+\.md)\b`{0,2}")
_NAME = re.compile(
    # Code comes first, so that a name inside it stays as it is.
    r"(`+).+?\1|(?<![\w.`\[/])([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?![\w`\]])",
    re.DOTALL,
)
_FENCE: Final = "```"


class KohortDocstrings(Extension):
    """Extension that rewrites each docstring when griffe has read its object."""

    def on_package(self, *, pkg: Object, **_: Any) -> None:
        """Rewrite the docstring of a package, for which griffe does not call ``on_object``."""
        self.on_object(obj=pkg)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            owner = obj if obj.is_class else obj.parent
            names = dict(link_targets())
            names.pop(obj.name, None)
            home = "" if owner is None or not owner.is_class else _public_name(owner)
            if owner is not None and home:
                names |= {name: f"{home}.{name}" for name in owner.members if name[0] != "_"}
            obj.docstring.value = to_markdown(obj.docstring.value, names)
            if home.startswith("kohort.errors.") and obj.name in _error_sections():
                # The heading on docs/reference/errors.md has the name in lower case as its anchor.
                obj.docstring.value += f"\n\n[What to do][{obj.name.lower()}]"


def _public_name(owner: Object | Alias) -> str:
    is_compat = owner.path.startswith("kohort.compat.")
    return owner.path if is_compat else link_targets().get(owner.name, "")


@functools.cache
def _error_sections() -> frozenset[str]:
    page = ROOT / "docs" / "reference" / "errors.md"
    return frozenset(re.findall(r"^### (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


@functools.cache
def link_targets() -> Mapping[str, str]:
    """Return the full public name of each public class and function."""
    return {
        name: f"{place}.{name}"
        for module in public_modules()
        for name, place in public_places(module).items()
    }


def to_markdown(text: str, names: Mapping[str, str]) -> str:
    """Return a docstring as Markdown. ``names`` maps names in the text to full public names."""
    parts = []
    for is_code, part in _blocks(text):
        parts.append(f"{_FENCE}text\n{part}\n{_FENCE}" if is_code else _prose(part, names))
    return "\n".join(parts)


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Yield prose and the blocks of code after ``::``, these without their indentation."""
    lines = text.splitlines()
    prose: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.endswith("::") or line.startswith(" "):
            prose.append(line)
            continue
        if line != "::":
            prose.append(line[:-1])
        code: list[str] = []
        while lines and (not lines[0].strip() or lines[0].startswith("    ")):
            code.append(lines.pop(0).removeprefix("    "))
        yield False, "\n".join([*prose, ""])
        yield True, "\n".join(code).strip("\n")
        prose = [""]
    yield False, "\n".join(prose)


def _prose(text: str, names: Mapping[str, str]) -> str:
    text = _ROLE.sub(lambda found: _link(found[1].rpartition(".")[2], names), text)
    text = _PAGE.sub(_page_link, text)
    text = _CODE.sub(lambda found: _code(found[1], names), text)
    return _NAME.sub(
        lambda found: _link(found[2], names, plain=True) if found[2] else found[0], text
    )


def _code(text: str, names: Mapping[str, str]) -> str:
    fence = "``" if "`" in text else "`"
    return _link(text, names) if text in names else f"{fence}{text}{fence}"


def _link(name: str, names: Mapping[str, str], *, plain: bool = False) -> str:
    if name in names:
        return f"[`{name}`][{names[name]}]"
    return name if plain else f"`{name}`"


def _page_link(found: re.Match[str]) -> str:
    title = (ROOT / "docs" / found[1]).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return f"[{title}][{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}]"
