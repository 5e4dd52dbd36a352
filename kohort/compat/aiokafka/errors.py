"""Errors of ``aiokafka.errors``: aiokafka's own where it is installed, else those of kohort.

``from kohort.compat.aiokafka.errors import ConsumerStoppedError`` works in both cases.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import kohort.errors

_ALIASES = {
    "ConcurrentTransactions": "ConcurrentTransactionsError",
    "ConsumerStoppedError": "ConsumerClosedError",
    "CorruptRecordException": "CorruptBatchError",
    "DuplicateSequenceNumber": "DuplicateSequenceNumberError",
    "FetchSessionIdNotFound": "FetchSessionIdNotFoundError",
    "GroupCoordinatorNotAvailableError": "CoordinatorNotAvailableError",
    "GroupIdNotFound": "GroupIdNotFoundError",
    "GroupLoadInProgressError": "CoordinatorLoadInProgressError",
    "IllegalOperation": "IllegalStateError",
    "InvalidConfigurationError": "InvalidConfigError",
    "InvalidFetchRequestError": "InvalidFetchSizeError",
    "InvalidFetchSessionEpoch": "InvalidFetchSessionEpochError",
    "InvalidProducerEpoch": "InvalidProducerEpochError",
    "InvalidProducerIdMapping": "InvalidProducerIdMappingError",
    "InvalidTransactionTimeout": "InvalidTransactionTimeoutError",
    "InvalidTxnState": "InvalidTxnStateError",
    "MemberIdRequired": "MemberIdRequiredError",
    "MessageSizeTooLargeError": "RecordTooLargeError",
    "NonEmptyGroup": "NonEmptyGroupError",
    "NotCoordinatorForGroupError": "NotCoordinatorError",
    "NotLeaderForPartitionError": "NotLeaderOrFollowerError",
    "OutOfOrderSequenceNumber": "OutOfOrderSequenceNumberError",
    "SaslAuthenticationFailed": "SaslAuthenticationFailedError",
    "StaleLeaderEpochCodeError": "NetworkError",
    "TransactionalIdAuthorizationFailed": "TransactionalIdAuthorizationFailedError",
    "UnknownError": "UnknownServerError",
    "UnknownProducerId": "UnknownProducerIdError",
    "for_code": "error_class",
}
"""Names of aiokafka that kohort's module has under another name."""


def _load() -> ModuleType | None:
    try:
        return import_module("aiokafka.errors")
    except ImportError:
        return None


_PEER = _load()
HAS_PEER: bool = _PEER is not None
"""True if aiokafka is installed, so that its own classes are raised."""


def __getattr__(name: str) -> Any:
    if _PEER is not None:
        return getattr(_PEER, name)
    try:
        return getattr(kohort.errors, _ALIASES.get(name, name))
    except AttributeError:
        raise AttributeError(
            f"aiokafka is not installed, and kohort has no error of the name {name!r}"
        ) from None


def __dir__() -> list[str]:
    return dir(_PEER) if _PEER is not None else sorted({*kohort.errors.__all__, *_ALIASES})
