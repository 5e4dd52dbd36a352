"""Writer of docs/reference/api.md: ``python -m tools.public_names``.

``tests/house/public.txt`` lists the public names. A test compares it with ``__all__`` of each
module.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LIST: Final = ROOT / "tests" / "house" / "public.txt"
PAGE: Final = ROOT / "docs" / "reference" / "api.md"

_HEAD: Final = """\
# Public names

You can rely on every name of this page. A release that changes one of them says so in the
[changelog](../../CHANGELOG.md). All other modules and names are private and may change in any
release. That includes modules without an underscore, such as `kohort.transport`. The packages of
`kohort.compat` have the names of the clients that they stand for.

`python -m tools.public_names` writes this page from `tests/house/public.txt`.
"""


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


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for module in public_modules():
        names = textwrap.fill(
            ", ".join(f"`{name}`" for name in module.names),
            100,
            break_long_words=False,
            break_on_hyphens=False,
        )
        parts.append(f"## `{module.name}`\n\n{module.purpose}\n\n{names}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
