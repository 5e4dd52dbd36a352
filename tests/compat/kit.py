"""Helpers of the tests for both drop-ins."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import kohort.compat
from tests.interop.brokers import Broker


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults, without annotations."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


def methods_of(peer: type[Any]) -> list[str]:
    """Return the names of a class's public methods, and of special methods that it defines."""
    return [
        name
        for name, _ in inspect.getmembers(peer, inspect.isfunction)
        if not name.startswith("_") or (name in vars(peer) and name.endswith("__"))
    ]


def public_names(cls: type[Any]) -> set[str]:
    """Return the names of a class that do not begin with an underscore."""
    return {name for name in dir(cls) if not name.startswith("_")}


def reading_options(broker: Broker, **options: Any) -> dict[str, Any]:
    """Return options of a consumer that reads from the beginning and responds quickly."""
    defaults = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "fetch_max_wait_ms": 100,
    }
    return {**defaults, **options}


@contextmanager
def without_peer(peer: str, package: str) -> Iterator[Any]:
    """Import a drop-in as if its peer were not installed. Restore all modules at the end."""
    name = package.rpartition(".")[2]
    before = getattr(kohort.compat, name)
    hidden = {
        module: sys.modules.pop(module)
        for module in list(sys.modules)
        if module == peer or module.startswith((f"{peer}.", package))
    }
    sys.modules[peer] = None  # type: ignore[assignment]
    try:
        yield import_module(package)
    finally:
        for module in [each for each in sys.modules if each.startswith(package)]:
            del sys.modules[module]
        del sys.modules[peer]
        sys.modules.update(hidden)
        setattr(kohort.compat, name, before)
