"""Public names, and the writer of docs/reference/api.md.

The list ``tests/house/public.txt`` has the public names. A test compares it with ``__all__`` of
each module. The packages of ``kohort.compat`` are read from their ``__all__``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.markdown import wrapped

ROOT: Final = Path(__file__).parents[1]
LIST: Final = ROOT / "tests" / "house" / "public.txt"
PAGE: Final = ROOT / "docs" / "reference" / "api.md"
FOLDER: Final = PAGE.with_suffix("")
"""Folder of the pages of modules, which ``tools.site.api_pages`` describes."""

_HEAD: Final = """\
# Public names

You can rely on every name of this page. A release that changes one of them says so in the
[changelog](../../CHANGELOG.md). All other modules and names are private and may change in any
release. That includes modules without an underscore, such as `kohort.transport`. The packages of
`kohort.compat` have the names of the clients that they stand for.

`python -m tools.generate` writes this page from `tests/house/public.txt`.
"""
_NEXT: Final = "Next: [the names of kohort](api/kohort.md).\n"
_COMPAT: Final = {
    "kohort.compat.aiokafka": "aiokafka's consumer on top of kohort.",
    "kohort.compat.aiokafka.abc": "The listener's base class of `aiokafka.abc`.",
    "kohort.compat.aiokafka.structs": "Values of `aiokafka.structs`.",
    "kohort.compat.confluent": "confluent-kafka's consumer on top of kohort.",
    "kohort.compat.confluent.aio": "Consumers for asyncio of `confluent_kafka.aio`.",
    "kohort.compat.kafka_python": "kafka-python's consumer on top of kohort.",
    "kohort.compat.kafka_python.structs": "Values of `kafka.structs`.",
}
_HOMES: Final = ("kohort.errors", "kohort.listeners", "kohort")
"""Modules whose page documents a name that others have, too."""


class PublicModule(NamedTuple):
    """Public module with its purpose and its public names."""

    name: str
    purpose: str
    names: tuple[str, ...]


def public_modules() -> Iterator[PublicModule]:
    """Return the modules of the list. A line ``# module: purpose`` begins each of them."""
    for block in LIST.read_text(encoding="utf-8").split("\n\n"):
        head, *lines = block.strip().splitlines()
        name, _, purpose = head.removeprefix("# ").partition(": ")
        yield PublicModule(name, purpose, tuple(line.removeprefix(f"{name}.") for line in lines))


def compat_modules() -> Iterator[PublicModule]:
    """Return the modules that have the names of other clients, without their submodules."""
    for module, purpose in _COMPAT.items():
        path = ROOT.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        [names] = (
            ast.literal_eval(node.value)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        submodules = {"abc", "aio", "errors", "structs"}
        yield PublicModule(module, purpose, tuple(sorted(set(names) - submodules)))


def public_places(module: PublicModule) -> Mapping[str, str]:
    """Return the module on whose page each name of a module is documented."""
    names = {each.name: each.names for each in public_modules()}
    return {
        name: next((home for home in _HOMES if name in names[home]), module.name)
        for name in module.names
    }


def page() -> str:
    """Return the text of the page of all names."""
    parts = [_HEAD]
    for module in public_modules():
        names = wrapped(", ".join(f"`{name}`" for name in module.names))
        link = f"[Reference](api/{module.name}.md)"
        parts.append(f"## `{module.name}`\n\n{module.purpose} {link}\n\n{names}\n")
    return "\n".join([*parts, _NEXT])
