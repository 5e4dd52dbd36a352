"""Errors that kohort raises, and classes for Kafka's error codes.

The tree groups errors by their cause and by what you do about them::

    KafkaError                              base class: catches every error of kohort
    +-- ConfigurationError                  a wrong option: correct the call (also a ValueError)
    |   +-- UnknownOptionError                  no such name: the message suggests the nearest
    |   +-- InvalidOptionError                  wrong type or value
    |   +-- UnsupportedOptionError              a Kafka option that kohort does not support yet
    +-- IllegalStateError                   a call that the object's state does not allow
    |   +-- ConsumerClosedError                 after close()
    |   +-- ReentrantCallError                  poll() inside a listener or deserializer
    |   +-- ForkedConsumerError                 a call in a child process after fork()
    |   +-- NotAssignedError                    the partition is not assigned to this consumer
    +-- ThreadStartError                    the system refused a thread (also a RuntimeError)
    +-- WakeupError                         wakeup() was called
    +-- KafkaTimeoutError                   a time limit passed (also a TimeoutError)
    |   +-- OffsetsTimeoutError                 only some offsets arrived in time
    +-- TransportError                      a failure of the network or of its bytes
    |   +-- KafkaConnectionError                connect failed, connection lost (retriable)
    |   |   +-- ProxyConnectionError                the proxy does not respond as one
    |   +-- NoBrokersAvailable                  no bootstrap server (also a KafkaTimeoutError)
    |   +-- ProtocolError                       bytes that are not the Kafka protocol
    |       +-- FrameTooLargeError                  a length prefix above the limit
    |       +-- MessageDecodeError                  a frame that cannot be decoded
    |       +-- MessageEncodeError                  a field that the version in use lacks
    |       +-- CorrelationIdError                  a response to another request
    +-- SecurityError                       TLS, login or token failed: change the settings
    |   +-- TlsError                            the TLS handshake failed (also a TransportError)
    |   |   +-- TlsVerificationError                the broker's certificate is rejected
    |   |   +-- TlsClientCertificateError           a client certificate is missing or rejected
    |   +-- WrongListenerError                  another security protocol (also a TransportError)
    |   +-- ProxyAuthenticationFailedError      the proxy refused the login (a TransportError)
    |   +-- ProxyRefusedError                   the rules of the proxy (also a TransportError)
    |   +-- SaslServerError                     a broker violates SASL (also a TransportError)
    |   +-- CredentialsUnavailableError         none at present (also a KafkaTimeoutError)
    |   |   +-- OAuthTokenUnavailableError          the token provider failed temporarily
    |   +-- OAuthTokenError                     no usable token
    |       +-- OAuthTokenUnavailableError          see above
    +-- DataError                           the data of one partition
    |   +-- CorruptBatchError                   a batch that contradicts its CRC or counts
    |   |   +-- UnsupportedCodecError               an unknown compression codec
    |   |   +-- DecompressionBudgetError            more bytes than the budget allows
    |   +-- RecordDeserializationError          your deserializer raised
    |   +-- RecordTooLargeError                 a batch above a limit (also a broker's error)
    |   +-- NoOffsetForPartitionError           no committed offset, auto_offset_reset="none"
    |   +-- LogTruncationError                  an unclean election removed records already read
    |   +-- TopicRecreatedError                 the topic was deleted and created again
    +-- DeserializerNotReadyError           a deserializer needs I/O, which poll() does for it
    +-- GroupError                          membership of a consumer group
    |   +-- CommitFailedError                   the group did not accept the commit
    |   +-- OffsetConflictError                 another program changed the stored offset
    |   +-- RebalanceListenerError              a listener raised: __cause__ is its error
    |   +-- AssignorError                       an assignor raised or assigned wrong partitions
    |   +-- GroupHasMembersError                a reset of the offsets of a group with members
    |   +-- OffsetsChangedError                 another client committed during a reset
    +-- BrokerResponseError                 an error code of a broker: one class per code below

``retriable`` is True if the same call may succeed later. ``refresh_metadata`` and
``refresh_coordinator`` are True if the client has to refresh the metadata or find the coordinator
again before it retries.
"""

from __future__ import annotations

# typing.get_type_hints() resolves the annotations of the classes in their public module.
from collections.abc import Callable, Mapping  # noqa: F401
from typing import ClassVar  # noqa: F401

from kohort.errors._broker import (
    BrokerNotAvailableError,
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    DuplicateSequenceNumberError,
    FencedInstanceIdError,
    FencedLeaderEpochError,
    FencedMemberEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    IllegalSaslStateError,
    InconsistentGroupProtocolError,
    InconsistentTopicIdError,
    InvalidCommitOffsetSizeError,
    InvalidConfigError,
    InvalidFetchSessionEpochError,
    InvalidFetchSizeError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MemberIdRequiredError,
    NetworkError,
    NonEmptyGroupError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OffsetMetadataTooLargeError,
    OffsetMovedToTieredStorageError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    ProducerFencedError,
    RebalanceInProgressError,
    RebootstrapRequiredError,
    RecordTooLargeError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    ResourceNotFoundError,
    SaslAuthenticationFailedError,
    StaleMemberEpochError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnstableOffsetCommitError,
    UnsupportedAssignorError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from kohort.errors._codes import ErrorCode, error_name
from kohort.errors._tree import (
    AssignorError,
    CommitFailedError,
    ConfigurationError,
    ConsumerClosedError,
    CorrelationIdError,
    CorruptBatchError,
    CredentialsUnavailableError,
    DataError,
    DecompressionBudgetError,
    DeserializerNotReadyError,
    ForkedConsumerError,
    FrameTooLargeError,
    GroupError,
    GroupHasMembersError,
    IllegalStateError,
    InvalidOptionError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    MessageDecodeError,
    MessageEncodeError,
    NoBrokersAvailable,
    NoOffsetForPartitionError,
    NotAssignedError,
    OAuthTokenError,
    OAuthTokenUnavailableError,
    OffsetConflictError,
    OffsetsChangedError,
    OffsetsTimeoutError,
    ProtocolError,
    ProxyAuthenticationFailedError,
    ProxyConnectionError,
    ProxyRefusedError,
    RebalanceListenerError,
    RecordDeserializationError,
    ReentrantCallError,
    SaslServerError,
    SecurityError,
    ThreadStartError,
    TlsClientCertificateError,
    TlsError,
    TlsVerificationError,
    TopicRecreatedError,
    TransportError,
    UnknownOptionError,
    UnsupportedCodecError,
    UnsupportedOptionError,
    WakeupError,
    WrongListenerError,
)
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition  # noqa: F401

__all__ = [
    "AssignorError",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "ConfigurationError",
    "ConsumerClosedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorrelationIdError",
    "CorruptBatchError",
    "CorruptMessageError",
    "CredentialsUnavailableError",
    "DataError",
    "DecompressionBudgetError",
    "DeserializerNotReadyError",
    "DuplicateSequenceNumberError",
    "ErrorCode",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FencedMemberEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "ForkedConsumerError",
    "FrameTooLargeError",
    "GroupAuthorizationFailedError",
    "GroupError",
    "GroupHasMembersError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigError",
    "InvalidFetchSessionEpochError",
    "InvalidFetchSizeError",
    "InvalidGroupIdError",
    "InvalidOptionError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRegularExpressionError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "LeaderNotAvailableError",
    "LogTruncationError",
    "MemberIdRequiredError",
    "MessageDecodeError",
    "MessageEncodeError",
    "NetworkError",
    "NoBrokersAvailable",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "NotAssignedError",
    "NotCoordinatorError",
    "NotLeaderOrFollowerError",
    "OAuthTokenError",
    "OAuthTokenUnavailableError",
    "OffsetConflictError",
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OffsetsChangedError",
    "OffsetsTimeoutError",
    "OutOfOrderSequenceNumberError",
    "PolicyViolationError",
    "ProducerFencedError",
    "ProtocolError",
    "ProxyAuthenticationFailedError",
    "ProxyConnectionError",
    "ProxyRefusedError",
    "RebalanceInProgressError",
    "RebalanceListenerError",
    "RebootstrapRequiredError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "ReentrantCallError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "SaslAuthenticationFailedError",
    "SaslServerError",
    "SecurityError",
    "StaleMemberEpochError",
    "ThreadStartError",
    "ThrottlingQuotaExceededError",
    "TlsClientCertificateError",
    "TlsError",
    "TlsVerificationError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicRecreatedError",
    "TransactionalIdAuthorizationFailedError",
    "TransportError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownOptionError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedCodecError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedOptionError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "WakeupError",
    "WrongListenerError",
    "broker_error",
    "error_class",
    "error_name",
]

for _name in __all__:
    # Tracebacks and pickles have the public name.
    vars()[_name].__module__ = __name__
