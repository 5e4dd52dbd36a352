"""Errors of ``aiokafka.errors``: aiokafka's own where it is installed, else those of kohort.

``from kohort.compat.aiokafka.errors import ConsumerStoppedError`` works in both cases.
"""

from __future__ import annotations

from typing import Any

from kohort.compat._peer import PeerErrors

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


_ERRORS = PeerErrors("aiokafka.errors", "aiokafka", _ALIASES)
HAS_PEER: bool = _ERRORS.has_peer
"""True if aiokafka is installed, so that its classes are raised."""


def __getattr__(name: str) -> Any:
    return _ERRORS.find(name)


def __dir__() -> list[str]:
    return _ERRORS.names()
