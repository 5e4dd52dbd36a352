"""Errors of ``kafka.errors``: kafka-python's own where it is installed, else those of kohort.

``from kohort.compat.kafka_python.errors import KafkaConfigurationError`` works in both cases.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import kohort.errors

_ALIASES = {
    "CorruptRecordError": "CorruptBatchError",
    "IllegalArgumentError": "ConfigurationError",
    "InvalidConfigurationError": "InvalidConfigError",
    "InvalidFetchRequestError": "InvalidFetchSizeError",
    "KafkaConfigurationError": "ConfigurationError",
    "KafkaProtocolError": "ProtocolError",
    "MessageSizeTooLargeError": "RecordTooLargeError",
    "NetworkExceptionError": "NetworkError",
    "NotLeaderForPartitionError": "NotLeaderOrFollowerError",
    "UnknownError": "UnknownServerError",
    "for_code": "error_class",
}
"""Names of kafka-python that kohort's module has under another name."""


def _load() -> ModuleType | None:
    try:
        return import_module("kafka.errors")
    except ImportError:
        return None


_PEER = _load()
HAS_PEER: bool = _PEER is not None
"""True if kafka-python is installed, so that its own classes are raised."""


def __getattr__(name: str) -> Any:
    if _PEER is not None:
        return getattr(_PEER, name)
    try:
        return getattr(kohort.errors, _ALIASES.get(name, name))
    except AttributeError:
        raise AttributeError(
            f"kafka-python is not installed, and kohort has no error of the name {name!r}"
        ) from None


def __dir__() -> list[str]:
    return dir(_PEER) if _PEER is not None else sorted({*kohort.errors.__all__, *_ALIASES})
