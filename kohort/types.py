"""The values that pass between kohort and its users: frozen, slotted, hashable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class TopicPartition(NamedTuple):
    """One partition of a topic. A named tuple, as in kafka-python and aiokafka."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition.

    ``offset`` is the next one to read; ``metadata`` free text of at most 4,096 bytes;
    ``leader_epoch`` that of the last record read, -1 if not known (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a timestamp (milliseconds since the epoch)."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group (KIP-447); the defaults stand for "not a member"."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = "<unjoined>"


def escaped(text: str) -> str:
    """Return the text without control characters, so that it cannot forge a line of the log."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class LazyModule:
    """A stand-in for a module that annotations name: :func:`typing.get_type_hints` imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_names(
    package: str, module_of: Callable[[str], str | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports names late (PEP 562).

    ``module_of`` returns the module of such a name, and None for any other.
    """
    namespace = vars(sys.modules[package])

    def find(name: str) -> Any:
        module = module_of(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = namespace[name] = getattr(import_module(module), name)
        return found

    def names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]})

    return find, names
