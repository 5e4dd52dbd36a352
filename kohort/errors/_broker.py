"""Error classes for the error codes in responses, one class per code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from kohort.errors._codes import ErrorCode, error_name
from kohort.errors._tree import DataError, KafkaError, SecurityError
from kohort.types import OffsetAndMetadata, TopicPartition


class BrokerResponseError(KafkaError):
    """Error code in a broker's response. ``code`` is its number.

    Codes without a subclass raise this class.
    """

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    refresh_metadata: ClassVar[bool] = False
    refresh_coordinator: ClassVar[bool] = False
    advice: str = ""
    """End of the message, which is for a consumer that goes on. Empty if there is none."""

    def __init__(self, message: str = "", *, code: int | None = None, advice: str = "") -> None:
        if code is not None:
            self.code = code
        self.advice = advice
        text = message or _describe(type(self), self.code)
        super().__init__(f"{text}. {advice}" if advice else text)

    def __init_subclass__(
        cls,
        *,
        code: ErrorCode,
        retriable: bool = False,
        refresh_metadata: bool = False,
        refresh_coordinator: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls.code = code
        cls.retriable = retriable
        cls.refresh_metadata = refresh_metadata
        cls.refresh_coordinator = refresh_coordinator
        _BY_CODE[int(code)] = cls


_BY_CODE: dict[int, type[BrokerResponseError]] = {}


def _describe(cls: type[BrokerResponseError], code: int) -> str:
    doc = cls.__doc__ if cls is not BrokerResponseError else None
    if not doc:
        return f"the broker returned {error_name(code)}"
    summary, _, _ = doc.partition("\n")
    return f"{error_name(code)}: {summary}"


def error_class(code: int) -> type[BrokerResponseError]:
    """Return the class for an error code, or :class:`BrokerResponseError` if it has none."""
    return _BY_CODE.get(code, BrokerResponseError)


def broker_error(code: int, message: str = "") -> BrokerResponseError:
    """Return the error for a code. The default message is the code's name and description."""
    return error_class(code)(message, code=code)


class UnknownServerError(BrokerResponseError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The broker failed and names no cause. Its log has the details."""


class OffsetOutOfRangeError(BrokerResponseError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is below the log start offset or above the high watermark. Seek to another one."""

    topic_partition: TopicPartition | None = None
    """Partition of the fetch; None for a response to another request."""
    offset: int | None = None
    """Offset of the fetch; None for a response to another request."""


class CorruptMessageError(BrokerResponseError, code=ErrorCode.CORRUPT_MESSAGE, retriable=True):
    """The broker found a record batch with a wrong CRC or size."""


class UnknownTopicOrPartitionError(
    BrokerResponseError,
    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    retriable=True,
    refresh_metadata=True,
):
    """The broker does not know the topic or partition. Check the name or create the topic."""


class InvalidFetchSizeError(BrokerResponseError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The broker does not accept the fetch size of the request."""


class LeaderNotAvailableError(
    BrokerResponseError, code=ErrorCode.LEADER_NOT_AVAILABLE, retriable=True, refresh_metadata=True
):
    """The partition has no leader at present. Retry after the broker has elected one."""


class NotLeaderOrFollowerError(
    BrokerResponseError,
    code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    retriable=True,
    refresh_metadata=True,
):
    """The broker is neither leader nor follower of the partition. Retry later."""


class RequestTimedOutError(BrokerResponseError, code=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """The broker did not finish the request within the time limit of the request."""


class BrokerNotAvailableError(BrokerResponseError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker is not available."""


class ReplicaNotAvailableError(
    BrokerResponseError, code=ErrorCode.REPLICA_NOT_AVAILABLE, retriable=True, refresh_metadata=True
):
    """The replica is not available on this broker. Retry later."""


class RecordTooLargeError(BrokerResponseError, DataError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A record batch is larger than the topic, the broker or a fetch allows.

    If a fetch raises it, its :class:`DataError` attributes name the partition and the offset. In a
    response to another request they are None, which the types leave out.
    """

    offset: int

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topic_partition: TopicPartition | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message, code=code)
        self.topic_partition = topic_partition  # type: ignore[assignment]
        self.offset = offset  # type: ignore[assignment]
        self.next_offset: int | None = next_offset
        self.reason: str = reason or str(self)


class OffsetMetadataTooLargeError(BrokerResponseError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of an offset commit exceeds the broker's limit (4,096 bytes by default)."""


class NetworkError(
    BrokerResponseError, code=ErrorCode.NETWORK_EXCEPTION, retriable=True, refresh_metadata=True
):
    """The connection to the broker ended before a response arrived."""


class CoordinatorLoadInProgressError(
    BrokerResponseError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retriable=True
):
    """The coordinator still loads the group's log. Retry later."""


class CoordinatorNotAvailableError(
    BrokerResponseError,
    code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    retriable=True,
    refresh_coordinator=True,
):
    """The group has no coordinator at present. Retry later."""


class NotCoordinatorError(
    BrokerResponseError, code=ErrorCode.NOT_COORDINATOR, retriable=True, refresh_coordinator=True
):
    """This broker is not the coordinator of the group. Retry later."""


class InvalidTopicError(BrokerResponseError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is not valid. Names have 1 to 249 characters of [a-zA-Z0-9._-]."""


class IllegalGenerationError(BrokerResponseError, code=ErrorCode.ILLEGAL_GENERATION):
    """The request has the generation of an earlier rebalance. The consumer has to rejoin."""


class InconsistentGroupProtocolError(
    BrokerResponseError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL
):
    """The member and its group have no assignor in common. Give all members one assignor."""


class InvalidGroupIdError(BrokerResponseError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is not valid. Set a group_id that is not empty."""


class UnknownMemberIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The coordinator does not know this member of the group. The consumer has to rejoin."""


class InvalidSessionTimeoutError(BrokerResponseError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """session_timeout_ms is outside the broker's group.min/max.session.timeout.ms."""


class RebalanceInProgressError(BrokerResponseError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing. Call poll() to rejoin."""


class InvalidCommitOffsetSizeError(BrokerResponseError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The offset commit is too large for the topic __consumer_offsets."""


class TopicAuthorizationFailedError(BrokerResponseError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The user is not authorized for the topic. Grant the missing operation."""

    topics: frozenset[str]
    """Topics that the broker refused. Empty if the response does not name them."""
    operation: str | None
    """Missing operation such as ``"READ"`` or ``"DESCRIBE"``. None if unknown."""
    principal: str | None = None
    """User without the operation. None if unknown."""
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    """Offsets that the same commit did commit. Empty unless a commit raises the error."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topics: Iterable[str] = (),
        operation: str | None = None,
        committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message, code=code, advice=advice)
        self.topics = frozenset(topics)
        self.operation = operation
        self.committed = dict(committed or {})


class GroupAuthorizationFailedError(BrokerResponseError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The user is not authorized for the group. Grant the missing operation."""

    group_id: str | None
    """Group that the broker refused. None if the response does not name it."""
    operation: str | None
    """Missing operation such as ``"READ"`` or ``"DESCRIBE"``. None if unknown."""
    principal: str | None = None
    """User without the operation. None if unknown."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        group_id: str | None = None,
        operation: str | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message, code=code, advice=advice)
        self.group_id = group_id
        self.operation = operation


class ClusterAuthorizationFailedError(
    BrokerResponseError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
):
    """The user is not authorized for an operation on the cluster. Grant it."""


class InvalidTimestampError(BrokerResponseError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is outside the range that the topic accepts."""


class UnsupportedSaslMechanismError(
    BrokerResponseError, SecurityError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM
):
    """The broker does not offer the SASL mechanism. Set a sasl_mechanism that it offers."""


class IllegalSaslStateError(BrokerResponseError, SecurityError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The broker got a request that the SASL exchange does not allow at this point."""


class UnsupportedVersionError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_VERSION):
    """Client and broker share no version of the API, or a feature needs a newer broker."""


class TopicAlreadyExistsError(BrokerResponseError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name already exists."""


class InvalidPartitionsError(BrokerResponseError, code=ErrorCode.INVALID_PARTITIONS):
    """The broker does not accept the number of partitions."""


class InvalidReplicationFactorError(BrokerResponseError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidConfigError(BrokerResponseError, code=ErrorCode.INVALID_CONFIG):
    """A topic or broker config has a value that the broker rejects."""


class InvalidRequestError(BrokerResponseError, code=ErrorCode.INVALID_REQUEST):
    """The broker rejects the request because its fields contradict each other."""


class UnsupportedForMessageFormatError(
    BrokerResponseError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
):
    """The topic's record format is too old for the request."""


class PolicyViolationError(BrokerResponseError, code=ErrorCode.POLICY_VIOLATION):
    """The request violates a policy of the broker."""


class OutOfOrderSequenceNumberError(
    BrokerResponseError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
):
    """A sequence number of an idempotent producer does not follow the one before."""


class DuplicateSequenceNumberError(BrokerResponseError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """The log already contains this batch of an idempotent producer."""


class InvalidProducerEpochError(BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A newer producer has the same producer id."""


class InvalidTxnStateError(BrokerResponseError, code=ErrorCode.INVALID_TXN_STATE):
    """The state of the transaction does not allow the request."""


class InvalidProducerIdMappingError(
    BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING
):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeoutError(
    BrokerResponseError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT
):
    """The transaction timeout exceeds the broker's maximum."""


class ConcurrentTransactionsError(
    BrokerResponseError, code=ErrorCode.CONCURRENT_TRANSACTIONS, retriable=True
):
    """The producer's previous transaction is not complete yet. Retry later."""


class TransactionalIdAuthorizationFailedError(
    BrokerResponseError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """The user is not authorized for the transactional id."""


class KafkaStorageError(
    BrokerResponseError, code=ErrorCode.KAFKA_STORAGE_ERROR, retriable=True, refresh_metadata=True
):
    """A disk of the broker failed. Retry after another replica has become leader."""


class SaslAuthenticationFailedError(
    BrokerResponseError, SecurityError, code=ErrorCode.SASL_AUTHENTICATION_FAILED
):
    """The broker rejected the credentials. Set the right ones."""


class UnknownProducerIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker has no records of the producer id."""


class NonEmptyGroupError(BrokerResponseError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members. Close them first."""


class GroupIdNotFoundError(BrokerResponseError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """The group id does not exist, or its group has another type."""


class FetchSessionIdNotFoundError(
    BrokerResponseError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, retriable=True
):
    """The broker has closed the fetch session. The next fetch opens a new one."""


class InvalidFetchSessionEpochError(
    BrokerResponseError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, retriable=True
):
    """The epoch of the fetch session is not the broker's. The next fetch opens a new session."""


class FencedLeaderEpochError(
    BrokerResponseError, code=ErrorCode.FENCED_LEADER_EPOCH, retriable=True, refresh_metadata=True
):
    """The request has the leader epoch of an earlier leader. Retry later."""


class UnknownLeaderEpochError(
    BrokerResponseError, code=ErrorCode.UNKNOWN_LEADER_EPOCH, retriable=True
):
    """The broker does not know this leader epoch yet. Retry later."""


class UnsupportedCompressionTypeError(
    BrokerResponseError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
):
    """The request version cannot carry batches of this compression codec."""


class OffsetNotAvailableError(
    BrokerResponseError, code=ErrorCode.OFFSET_NOT_AVAILABLE, retriable=True
):
    """A new leader does not know its high watermark yet. Retry later."""


class MemberIdRequiredError(BrokerResponseError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """The coordinator assigned a member id. Join again with it (KIP-394)."""


class GroupMaxSizeReachedError(BrokerResponseError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group already has as many members as the broker's group.max.size allows."""


class FencedInstanceIdError(BrokerResponseError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member uses this group_instance_id. Give each member a unique one (KIP-345)."""


class InvalidRecordError(BrokerResponseError, code=ErrorCode.INVALID_RECORD):
    """The broker rejected a record that the topic does not accept."""


class UnstableOffsetCommitError(
    BrokerResponseError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT, retriable=True
):
    """The group has offsets of an open transaction. Retry after the transaction has ended."""


class ThrottlingQuotaExceededError(
    BrokerResponseError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True
):
    """The request exceeds a quota of the broker. Retry later."""


class ProducerFencedError(BrokerResponseError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer uses the same transactional id."""


class ResourceNotFoundError(BrokerResponseError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """The resource that the request names does not exist."""


class UnknownTopicIdError(
    BrokerResponseError, code=ErrorCode.UNKNOWN_TOPIC_ID, retriable=True, refresh_metadata=True
):
    """The broker does not know the topic id. Retry later."""


class InconsistentTopicIdError(
    BrokerResponseError, code=ErrorCode.INCONSISTENT_TOPIC_ID, retriable=True, refresh_metadata=True
):
    """The topic id does not belong to the topic name on this broker. Retry later."""


class FetchSessionTopicIdError(
    BrokerResponseError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, retriable=True
):
    """A fetch session mixes topic names and topic ids. The next fetch opens a new session."""


class OffsetMovedToTieredStorageError(
    BrokerResponseError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
):
    """The offset is in tiered storage and no longer in the local log."""


class FencedMemberEpochError(BrokerResponseError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The coordinator fenced the member epoch. The consumer has to rejoin (KIP-848)."""


class UnreleasedInstanceIdError(BrokerResponseError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """Another member has not released this group_instance_id yet (KIP-848)."""


class UnsupportedAssignorError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The broker does not support the server-side assignor (KIP-848)."""


class StaleMemberEpochError(BrokerResponseError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch is older than the coordinator's. Heartbeat and retry (KIP-848)."""


class InvalidRegularExpressionError(BrokerResponseError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The broker cannot parse the topic pattern. Correct the regular expression."""


class RebootstrapRequiredError(BrokerResponseError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The broker requires the client to reconnect through its bootstrap servers (KIP-1102)."""
