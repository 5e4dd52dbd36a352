"""Writer of the pages of the API: ``python -m tools.public_names``.

They are docs/reference/api.md and one page for each module under docs/reference/api. The list
``tests/house/public.txt`` has the public names. A test compares it with ``__all__`` of each module.
The packages of ``kohort.compat`` are read from their ``__all__``.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LIST: Final = ROOT / "tests" / "house" / "public.txt"
PAGE: Final = ROOT / "docs" / "reference" / "api.md"
FOLDER: Final = PAGE.with_suffix("")

_HEAD: Final = """\
# Public names

You can rely on every name of this page. A release that changes one of them says so in the
[changelog](../../CHANGELOG.md). All other modules and names are private and may change in any
release. That includes modules without an underscore, such as `kohort.transport`. The packages of
`kohort.compat` have the names of the clients that they stand for.

`python -m tools.public_names` writes this page from `tests/house/public.txt`.
"""
_COMPAT: Final = {
    "kohort.compat.aiokafka": "aiokafka's consumer on top of kohort.",
    "kohort.compat.aiokafka.abc": "The listener's base class of `aiokafka.abc`.",
    "kohort.compat.aiokafka.structs": "Values of `aiokafka.structs`.",
    "kohort.compat.confluent": "Offsets and membership for confluent-kafka's producer.",
    "kohort.compat.kafka_python": "kafka-python's consumer on top of kohort.",
    "kohort.compat.kafka_python.structs": "Values of `kafka.structs`.",
}
_HOMES: Final = ("kohort.errors", "kohort.listeners", "kohort")
"""Modules whose page documents a name that others have, too."""


_FIRST: Final = ("KafkaConsumer", "AsyncKafkaConsumer", "Cluster", "KafkaError")
"""Names that come first on their page."""


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
        submodules = {"abc", "errors", "structs"}
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
        names = textwrap.fill(
            ", ".join(f"`{name}`" for name in module.names),
            100,
            break_long_words=False,
            break_on_hyphens=False,
        )
        link = f"[Reference](api/{module.name}.md)"
        parts.append(f"## `{module.name}`\n\n{module.purpose} {link}\n\n{names}\n")
    return "\n".join(parts)


def module_pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page under docs/reference/api."""
    for module in public_modules():
        yield f"{module.name}.md", _module_page(module, public_places(module))
    for module in compat_modules():
        yield f"{module.name}.md", _module_page(module, dict.fromkeys(module.names, module.name))


def _module_page(module: PublicModule, places: Mapping[str, str]) -> str:
    parts = [
        f"# {module.name}",
        _directive(module.name, "members: false", "show_root_heading: false"),
    ]
    own = [name for name, home in places.items() if home == module.name]
    own.sort(key=lambda name: (_FIRST.index(name), "") if name in _FIRST else (len(_FIRST), name))
    parts += [_directive(f"{module.name}.{name}", *_options(module.name, name)) for name in own]
    others = [
        f'| <a id="{module.name}.{name}"></a>[`{name}`]({home}.md#{home}.{name}) | `{home}` |'
        for name, home in places.items()
        if home != module.name
    ]
    if others:
        parts += [
            "## Names of other modules",
            "\n".join(["| name | module |", "|---|---|", *others]),
        ]
    return "\n\n".join(parts) + "\n"


def _options(module: str, name: str) -> list[str]:
    """Return the settings of one name that differ from those of mkdocs.yml."""
    if module == "kohort.errors":
        return ["inherited_members: false"]  # each class would repeat the members of KafkaError
    if name.endswith("ConsumerOptions"):
        return ["members: false", "inherited_members: false"]  # the page of all options has them
    if name.endswith(("Consumer", "Cluster")):
        return ["members_order: alphabetical"]  # they are from several base classes
    return []


def _directive(name: str, *options: str) -> str:
    lines = [f"::: {name}", *(["    options:"] if options else [])]
    return "\n".join([*lines, *(f"      {option}" for option in options)])


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    for file, text in module_pages():
        (FOLDER / file).write_text(text, encoding="utf-8")
