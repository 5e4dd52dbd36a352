"""Ctrl-C on trio: it goes to the program and not to a task of the core.

trio raises KeyboardInterrupt in whatever task is running. In one of the core's it would end the
core before the consumer has left its group. Out of protected functions it goes to the main task.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

PROTECTED_MODULES = (
    "kohort.transport",
    "kohort.fetcher",
    "kohort.coordinator_client",
    "kohort.consumer._autocommit",
    "kohort.consumer._engine",
    "kohort.consumer._topics",
    "kohort.consumer._positions",
    "kohort.consumer._group_adapter",
    "kohort.consumer._stats_reporter",
)
"""The code of the core's tasks. Nothing of the user's runs in it but the connect hook."""


_protected: set[str] = set()


def protect_modules() -> None:
    """Protect the coroutines of the core's modules.

    Each module once. The modules of groups are imported with the first consumer of a group.
    """
    for name in list(sys.modules):
        if name.startswith(PROTECTED_MODULES) and name not in _protected:
            _protected.add(name)
            for function in _coroutines(name):
                protect(function)


def protect(function: Any) -> None:
    """Have trio raise KeyboardInterrupt in the main task instead of in this coroutine function."""
    import trio  # it is there: its event loop is running

    trio.lowlevel.enable_ki_protection(function)


def _coroutines(name: str) -> Iterator[Any]:
    for value in list(vars(sys.modules[name]).values()):
        if getattr(value, "__module__", None) == name:
            yield from _coroutine_functions(value)


def _coroutine_functions(value: Any) -> Iterator[Any]:
    members = vars(value).values() if inspect.isclass(value) else [value]
    for member in members:
        function = getattr(member, "__func__", member)  # of class methods
        if inspect.iscoroutinefunction(function):
            yield function
