"""The reaction to each error of InitProducerId and Produce, as a table without I/O."""

from __future__ import annotations

from enum import Enum

from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    MessageEncodeError,
    SecurityError,
    TransportError,
)


class Reaction(Enum):
    """What follows an error of one batch."""

    RETRY = "send the same bytes again after a pause"
    NEW_ID = "get a new producer id, and send the batch again with it"
    SPLIT = "send the halves of the batch, because one record may be the cause"
    FAIL = "give the batch up"


_NEW_ID = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # the broker lost an earlier batch
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,  # brokers before 2.4, after retention of all records
        ErrorCode.PRODUCER_FENCED,
    }
)
_SPLIT = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
_RETRY = frozenset(
    {
        # kohort has no class for these, so error.retriable does not say so.
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,  # of CreateTopics
    }
)
_MAY_BE_APPENDED = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def reaction_to(error: KafkaError) -> Reaction:
    """Return what follows an error. Errors of the network are retried, wrong settings are not."""
    if isinstance(error, BrokerResponseError):
        if error.code in _NEW_ID:
            return Reaction.NEW_ID
        if error.code in _SPLIT:
            return Reaction.SPLIT
        return Reaction.RETRY if error.retriable or error.code in _RETRY else Reaction.FAIL
    if isinstance(error, (SecurityError, IllegalStateError, MessageEncodeError)):
        return Reaction.RETRY if error.retriable else Reaction.FAIL
    return Reaction.RETRY if error.retriable or isinstance(error, TransportError) else Reaction.FAIL


def may_be_appended(error: KafkaError) -> bool:
    """Return True if the broker may have appended the batch, or may still do so."""
    return not isinstance(error, BrokerResponseError) or error.code in _MAY_BE_APPENDED
