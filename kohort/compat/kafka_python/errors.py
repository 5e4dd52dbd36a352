"""Errors of ``kafka.errors``: kafka-python's own where it is installed, else those of kohort.

``from kohort.compat.kafka_python.errors import KafkaConfigurationError`` works in both cases.
"""

from __future__ import annotations

from typing import Any

from kohort.compat._peer import PeerErrors

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


_ERRORS = PeerErrors("kafka.errors", "kafka-python", _ALIASES)
HAS_PEER: bool = _ERRORS.has_peer
"""True if kafka-python is installed, so that its classes are raised."""


def __getattr__(name: str) -> Any:
    return _ERRORS.find(name)


def __dir__() -> list[str]:
    return _ERRORS.names()
