"""Addresses of the documentation, which tracebacks and ``kohort errors NAME`` print."""

from __future__ import annotations

from typing import Final

SITE: Final[str] = ""
"""Address of the documentation of this version, such as ``https://host/0.2/``. Empty: unknown."""

_HOMES: Final = ("kohort.errors", "kohort.schemas._errors", "kohort.spark_connector._errors")
"""Modules of the classes that have a section in docs/reference/errors.md."""


def note_of(error: type[BaseException]) -> str:
    """Return the note for a traceback: the address of the section, or the command that prints it.

    A class without a section has that of its nearest base class.
    """
    name = error.__name__
    for each in error.__mro__:  # no generator: an interrupt inside of one is reported as unraisable
        if each.__module__ in _HOMES:
            name = each.__name__
            break
    if SITE:
        return f"More: {page_address('reference/errors.md')}#{name.lower()}"
    return f"More: kohort errors {name}"


def page_address(page: str) -> str:
    """Return the address of a page of docs/, or its path in the repository if SITE is empty.

    ``page`` may have an anchor, such as ``spark.md#data-loss``.
    """
    if not SITE:
        return f"docs/{page}"
    path, _, anchor = page.partition("#")
    return f"{SITE}{path.removesuffix('.md')}/" + (f"#{anchor}" if anchor else "")
