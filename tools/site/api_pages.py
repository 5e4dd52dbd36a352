"""Pages of public modules under docs/reference/api.

Each page has two forms. In the repository it is a list of names with the first sentences of their
docstrings. The site has whole docstrings and signatures, by a directive of mkdocstrings for each
name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import griffe

from tools.markdown import wrapped
from tools.public_names import (
    ROOT,
    PublicModule,
    compat_modules,
    public_modules,
    public_places,
)
from tools.site.docstrings import to_markdown

_FIRST: Final = ("KafkaConsumer", "AsyncKafkaConsumer", "Cluster", "KafkaError")
"""Names that come first on their page."""

_LAST: Final = "[third-party clients](../clients.md)"
"""Link of the last page."""
_SITE: Final = """\
[The documentation site](../../internals/site.md) has the whole docstrings and the signatures here.
`make docs-serve` shows it.
"""


def lists() -> Iterator[tuple[str, str]]:
    """Yield file name and text of each page, as it is in the repository."""
    modules = [*_modules()]
    following = [*(f"[{module.name}]({module.name}.md)" for module, _ in modules[1:]), _LAST]
    for (module, places), link in zip(modules, following, strict=True):
        parts = [f"# {module.name}\n", f"{module.purpose}\n", _SITE]
        parts += [_item(f"{module.name}.{name}", name) for name in _own(module, places)]
        parts += [*_others(module, places), f"\nNext: {link}.\n"]
        yield f"{module.name}.md", "\n".join(parts)


def directives() -> Iterator[tuple[str, str]]:
    """Yield file name and text of each page, as the site is built from it."""
    for module, places in _modules():
        parts = [
            f"# {module.name}\n",
            _directive(module.name, "members: false", "show_root_heading: false"),
        ]
        for name in _own(module, places):
            parts.append(_directive(f"{module.name}.{name}", *_options(module.name, name)))
        yield f"{module.name}.md", "\n".join([*parts, *_others(module, places)]) + "\n"


def _modules() -> Iterator[tuple[PublicModule, Mapping[str, str]]]:
    """Yield each module with the modules on whose pages its names are documented."""
    for module in public_modules():
        yield module, public_places(module)
    for module in compat_modules():
        yield module, dict.fromkeys(module.names, module.name)


def _own(module: PublicModule, places: Mapping[str, str]) -> list[str]:
    own = [name for name, home in places.items() if home == module.name]
    own.sort(key=lambda name: (_FIRST.index(name), "") if name in _FIRST else (len(_FIRST), name))
    return own


def _others(module: PublicModule, places: Mapping[str, str]) -> Iterator[str]:
    """Yield the table of names that are documented on other pages."""
    others = [(name, home) for name, home in places.items() if home != module.name]
    if others:
        yield "\n## Names of other modules\n\n| name | module |\n|---|---|"
    for name, home in others:
        link = f"[`{name}`]({home}.md#{home}.{name})"
        yield f'| <a id="{module.name}.{name}"></a>{link} | `{home}` |'


def _item(path: str, name: str) -> str:
    text = to_markdown(_first_sentence(path), {})
    return wrapped(f'- <a id="{path}"></a> `{name}`: {text}', indent="  ")


def _first_sentence(path: str) -> str:
    found: Any = _package()[path.removeprefix("kohort.")]
    found = found.final_target if found.is_alias else found
    text = found.docstring.value if found.docstring else ""
    return text.partition("\n")[0]


@functools.cache
def _package() -> Any:
    return griffe.load("kohort", search_paths=[ROOT])


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
    return "\n".join([*lines, *(f"      {option}" for option in options), ""])
