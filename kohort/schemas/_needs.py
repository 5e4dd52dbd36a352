"""The packages of the extra ``schemas``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def check_installed(what: str, *modules: str) -> None:
    """Raise ImportError with the command to type if a module is not installed."""
    missing = [module for module in modules if not _is_installed(module)]
    if missing:
        raise ImportError(
            f"{what} needs {' and '.join(missing)}: pip install 'kohort[schemas]'", name=missing[0]
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


class LateModule:
    """Module that the first look-up of a name imports, such as pyarrow.

    So kohort.schemas needs it only for columns, and :func:`typing.get_type_hints` finds it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
