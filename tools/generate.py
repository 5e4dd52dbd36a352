"""Writer of all generated pages and modules: ``python -m tools.generate``.

A test compares each file with its source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import (
    cli_page,
    errors_page,
    options_page,
    public_names,
    rebalance_drawing,
    state_picture,
    typed_options,
)
from tools.rebalance_run import KINDS
from tools.site import api_pages

ROOT: Final = Path(__file__).parents[1]


def stale() -> Iterator[tuple[Path, str]]:
    """Yield each generated file that differs from its source, with its new text."""
    for path, text in files():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


def files() -> Iterator[tuple[Path, str]]:
    """Yield each generated file with its text."""
    yield from typed_options.files().items()
    for module in (options_page, cli_page, errors_page, public_names, state_picture):
        yield module.PAGE, module.page()
    for name, text in api_pages.lists():
        yield public_names.FOLDER / name, text
    for kind in KINDS:
        yield rebalance_drawing.path(kind), rebalance_drawing.drawing(kind)


if __name__ == "__main__":
    # A killed member of a drawn run logs that no broker responds.
    logging.getLogger("kohort").setLevel(logging.CRITICAL)
    for changed, new in stale():
        changed.write_text(new, encoding="utf-8")
        print(changed.relative_to(ROOT))
