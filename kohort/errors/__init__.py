"""Every error that kohort raises, and what Kafka's error codes mean.

The tree is split by whose fault an error is and what to do about it::

    KafkaError                              catch this to catch everything of kohort
    +-- ConfigurationError                  an option is wrong: mend the call (also a ValueError)
    |   +-- UnknownOptionError                  no such name; the message suggests the nearest
    |   +-- InvalidOptionError                  wrong type or value
    |   +-- UnsupportedOptionError              a real Kafka option that kohort does not have yet
    +-- IllegalStateError                   a call that its object's state does not allow
    |   +-- ConsumerClosedError                 after close()
    |   +-- ReentrantCallError                  poll() from inside a listener or deserializer
    |   +-- ForkedConsumerError                 used in a child process of fork()
    |   +-- NotAssignedError                    the partition is not assigned to this consumer
    +-- ThreadStartError                    no thread for the consumer (also a RuntimeError)
    +-- WakeupError                         wakeup() was called
    +-- KafkaTimeoutError                   not done within the time given (also a TimeoutError)
    |   +-- OffsetsTimeoutError                 of the offsets asked for only some came
    +-- TransportError                      the network or the bytes on it
    |   +-- KafkaConnectionError                connect failed, connection lost (retriable)
    |   +-- NoBrokersAvailable                  no bootstrap address (a KafkaTimeoutError, too)
    |   +-- ProtocolError                       bytes that are not the Kafka protocol
    |       +-- FrameTooLargeError                  a length prefix over the bound
    |       +-- MessageDecodeError                  a frame that does not decode
    |       +-- MessageEncodeError                  a field the version in use does not have
    |       +-- CorrelationIdError                  an answer to another request
    +-- SecurityError                       TLS, a login or a token failed: change the settings
    |   +-- TlsError                            the TLS handshake failed (also a TransportError)
    |   |   +-- TlsVerificationError                the broker's certificate is not accepted
    |   |   +-- TlsClientCertificateError           a client certificate is missing or not accepted
    |   +-- WrongListenerError                  another security protocol (also a TransportError)
    |   +-- SaslServerError                     a broker broke SASL's rules (also a TransportError)
    |   +-- CredentialsUnavailableError         none for now (retriable, a KafkaTimeoutError, too)
    |   |   +-- OAuthTokenUnavailableError          the provider of tokens failed for now
    |   +-- OAuthTokenError                     no usable token
    |       +-- OAuthTokenUnavailableError          see above
    +-- DataError                           one partition's data; others go on
    |   +-- CorruptBatchError                   a batch that is not what its CRC or counts say
    |   |   +-- UnsupportedCodecError               a compression codec nobody knows
    |   |   +-- DecompressionBudgetError            more bytes than the budget allows
    |   +-- RecordDeserializationError          the user's deserializer raised
    |   +-- RecordTooLargeError                 a batch that fits into no fetch (also a broker's)
    |   +-- NoOffsetForPartitionError           nothing committed and auto_offset_reset="none"
    |   +-- LogTruncationError                  an unclean election cut off what was read
    |   +-- TopicRecreatedError                 deleted and created again; not with every reset
    +-- GroupError                          membership
    |   +-- CommitFailedError                   the group moved on: the commit did not count
    |   +-- RebalanceListenerError              a listener raised; the cause is attached
    |   +-- AssignorError                       an assignor raised or assigned nonsense
    |   +-- MaxPollIntervalExceededError        poll() was not called in time
    +-- BrokerResponseError                 an error code of a broker; one class per code below

``retriable`` says that the same call may succeed later; ``refresh_metadata`` and
``refresh_coordinator`` say what a client has to look up anew before that.
"""

from __future__ import annotations

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
    ForkedConsumerError,
    FrameTooLargeError,
    GroupError,
    IllegalStateError,
    InvalidOptionError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    MaxPollIntervalExceededError,
    MessageDecodeError,
    MessageEncodeError,
    NoBrokersAvailable,
    NoOffsetForPartitionError,
    NotAssignedError,
    OAuthTokenError,
    OAuthTokenUnavailableError,
    OffsetsTimeoutError,
    ProtocolError,
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
    "MaxPollIntervalExceededError",
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
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OffsetsTimeoutError",
    "OutOfOrderSequenceNumberError",
    "PolicyViolationError",
    "ProducerFencedError",
    "ProtocolError",
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
