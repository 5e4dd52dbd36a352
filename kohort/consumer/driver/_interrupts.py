"""Protection of the engine's tasks from Ctrl-C on trio.

trio raises KeyboardInterrupt in the task that is running. In a task of the engine, it would end the
engine before the consumer has left its group. For protected functions, trio raises it in the main
task instead.
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
    "kohort.consumer.engine._autocommit",
    "kohort.consumer.engine._engine",
    "kohort.consumer.engine._topics",
    "kohort.consumer.engine._positions",
    "kohort.consumer.engine._group_adapter",
    "kohort.consumer.diagnosis._metrics",
    "kohort.consumer.engine._requests",
)
"""The modules of the engine's tasks. The connect hook is the only user code that runs in them."""


_protected: set[str] = set()


def protect_modules() -> None:
    """Protect the coroutines of the engine's modules that were not protected before.

    Later calls find new modules: those of groups are imported with the first group consumer.
    """
    for name in list(sys.modules):
        if name.startswith(PROTECTED_MODULES) and name not in _protected:
            _protected.add(name)
            for function in _coroutines(name):
                protect(function)


def protect(function: Any) -> None:
    """Let trio raise KeyboardInterrupt in the main task instead of in a coroutine function."""
    import trio  # installed, because its event loop is running

    trio.lowlevel.enable_ki_protection(function)


def _coroutines(name: str) -> Iterator[Any]:
    for value in list(vars(sys.modules[name]).values()):
        if getattr(value, "__module__", None) == name:
            yield from _coroutine_functions(value)


def _coroutine_functions(value: Any) -> Iterator[Any]:
    members = vars(value).values() if inspect.isclass(value) else [value]
    for member in members:
        function = getattr(member, "__func__", member)  # the function of a class method
        if inspect.iscoroutinefunction(function):
            yield function
