"""Access to a library that a drop-in takes the place of, and that may not be installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import kohort.errors


def peer_name(module: str, name: str) -> Any:
    """Return a name of one of the library's modules, or None if it is not there."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def put_everywhere(modules: Iterable[str], name: str, value: object) -> None:
    """Put a value under a name of several modules. Raise ImportError without the library."""
    for module in modules:
        setattr(import_module(module), name, value)


def passed_on(own: str, module: str, client: str, name: str) -> Any:
    """Return a name of the library that the module ``own`` does not replace."""
    if name.startswith("_"):
        raise AttributeError(f"module {own!r} has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise AttributeError(f"{name} is part of {client}. Install {client}") from None


class PeerErrors:
    """The error classes of a library, or kohort's where it is not installed."""

    def __init__(self, module: str, client: str, aliases: Mapping[str, str]) -> None:
        """Take the names that kohort's errors have there as ``aliases``."""
        self._client = client
        self._aliases = aliases
        self._module: ModuleType | None
        try:
            self._module = import_module(module)
        except ImportError:
            self._module = None

    @property
    def has_peer(self) -> bool:
        """True if the library is installed, so that its classes are raised."""
        return self._module is not None

    def find(self, name: str) -> Any:
        """Return the class of a name. Raise AttributeError for an unknown one."""
        if self._module is not None:
            return getattr(self._module, name)
        try:
            return getattr(kohort.errors, self._aliases.get(name, name))
        except AttributeError:
            raise AttributeError(
                f"{self._client} is not installed, and kohort has no error of the name {name!r}"
            ) from None

    def names(self) -> list[str]:
        """Return the names of all classes."""
        if self._module is not None:
            return dir(self._module)
        return sorted({*kohort.errors.__all__, *self._aliases})
