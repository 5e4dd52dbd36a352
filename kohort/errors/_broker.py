"""One class for each error code that a client can be answered with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from kohort.errors._codes import ErrorCode, error_name
from kohort.errors._tree import DataError, KafkaError, SecurityError
from kohort.types import OffsetAndMetadata, TopicPartition


class BrokerResponseError(KafkaError):
    """A broker answered with an error code.

    A code without a class of its own arrives as this class; ``code`` is always the number.
    """

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    refresh_metadata: ClassVar[bool] = False
    refresh_coordinator: ClassVar[bool] = False

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or _describe(type(self), self.code))

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
    return f"{error_name(code)}: {doc}" if doc else f"the broker answered {error_name(code)}"


def error_class(code: int) -> type[BrokerResponseError]:
    """The class for an error code; :class:`BrokerResponseError` itself where there is none."""
    return _BY_CODE.get(code, BrokerResponseError)


def broker_error(code: int, message: str = "") -> BrokerResponseError:
    """The error to raise for a code, with a message of its own (else the code's name and text)."""
    return error_class(code)(message, code=code)


class UnknownServerError(BrokerResponseError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The broker failed in a way it does not name; its log knows more."""


class OffsetOutOfRangeError(BrokerResponseError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is below the log start or beyond the high watermark."""


class CorruptMessageError(BrokerResponseError, code=ErrorCode.CORRUPT_MESSAGE, retriable=True):
    """The broker found a record batch with a wrong CRC or size."""


class UnknownTopicOrPartitionError(
    BrokerResponseError,
    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    retriable=True,
    refresh_metadata=True,
):
    """The topic or partition does not exist on this broker."""


class InvalidFetchSizeError(BrokerResponseError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The fetch size is not one the broker takes."""


class LeaderNotAvailableError(
    BrokerResponseError, code=ErrorCode.LEADER_NOT_AVAILABLE, retriable=True, refresh_metadata=True
):
    """The partition has no leader at the moment."""


class NotLeaderOrFollowerError(
    BrokerResponseError,
    code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    retriable=True,
    refresh_metadata=True,
):
    """This broker does not hold the partition (any more)."""


class RequestTimedOutError(BrokerResponseError, code=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """The broker gave up on the request after its own time limit."""


class BrokerNotAvailableError(BrokerResponseError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker is not there."""


class ReplicaNotAvailableError(
    BrokerResponseError, code=ErrorCode.REPLICA_NOT_AVAILABLE, retriable=True, refresh_metadata=True
):
    """The replica asked for is not there."""


class RecordTooLargeError(BrokerResponseError, DataError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A record batch is larger than the topic or broker allows, or than a fetch can take.

    From a fetch it is a :class:`DataError`, too: it says of which partition, and at which offset.
    """

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
        self.topic_partition: TopicPartition | None = topic_partition
        self.offset: int | None = offset
        self.next_offset: int | None = next_offset
        self.reason: str = reason or str(self)


class OffsetMetadataTooLargeError(BrokerResponseError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of an offset commit is over the broker's limit (4,096 bytes by default)."""


class NetworkError(
    BrokerResponseError, code=ErrorCode.NETWORK_EXCEPTION, retriable=True, refresh_metadata=True
):
    """The broker disconnected before it answered."""


class CoordinatorLoadInProgressError(
    BrokerResponseError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retriable=True
):
    """The coordinator is still reading its log."""


class CoordinatorNotAvailableError(
    BrokerResponseError,
    code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    retriable=True,
    refresh_coordinator=True,
):
    """There is no coordinator for the group right now."""


class NotCoordinatorError(
    BrokerResponseError, code=ErrorCode.NOT_COORDINATOR, retriable=True, refresh_coordinator=True
):
    """This broker is not the group's coordinator (any more)."""


class InvalidTopicError(BrokerResponseError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is not a legal one."""


class IllegalGenerationError(BrokerResponseError, code=ErrorCode.ILLEGAL_GENERATION):
    """The request carries a generation that is over."""


class InconsistentGroupProtocolError(
    BrokerResponseError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL
):
    """The member and its group share no assignor."""


class InvalidGroupIdError(BrokerResponseError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is not a legal one."""


class UnknownMemberIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The coordinator does not know this member (any more)."""


class InvalidSessionTimeoutError(BrokerResponseError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """session_timeout_ms is outside the broker's group.min/max.session.timeout.ms."""


class RebalanceInProgressError(BrokerResponseError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing: rejoin."""


class InvalidCommitOffsetSizeError(BrokerResponseError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The offset commit is too large for __consumer_offsets."""


class TopicAuthorizationFailedError(BrokerResponseError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """Not allowed to use the topic."""

    topics: frozenset[str]
    """Topics that were refused; empty where the response does not name them."""
    operation: str | None
    """Right that is missing, ``"READ"`` or ``"DESCRIBE"``; None if unknown."""
    principal: str | None = None
    """User that lacks the right; None if unknown."""
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    """Offsets of the same commit that were committed; empty for anything but a commit."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        topics: Iterable[str] = (),
        operation: str | None = None,
        committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.topics = frozenset(topics)
        self.operation = operation
        self.committed = dict(committed or {})


class GroupAuthorizationFailedError(BrokerResponseError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """Not allowed to use the group."""

    group_id: str | None
    """The group; None where the response does not name it."""
    operation: str | None
    """Right that is missing, ``"READ"`` or ``"DESCRIBE"``; None if unknown."""
    principal: str | None = None
    """User that lacks the right; None if unknown."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        group_id: str | None = None,
        operation: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.group_id = group_id
        self.operation = operation


class ClusterAuthorizationFailedError(
    BrokerResponseError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
):
    """Not allowed to act on the cluster."""


class InvalidTimestampError(BrokerResponseError, code=ErrorCode.INVALID_TIMESTAMP):
    """The timestamp is out of the range that the topic takes."""


class UnsupportedSaslMechanismError(
    BrokerResponseError, SecurityError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM
):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslStateError(BrokerResponseError, SecurityError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """A request came before its place in the SASL exchange."""


class UnsupportedVersionError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_VERSION):
    """No version of the API is known to both sides, or a feature needs a newer broker."""


class TopicAlreadyExistsError(BrokerResponseError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of that name is there already."""


class InvalidPartitionsError(BrokerResponseError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is not one the broker takes."""


class InvalidReplicationFactorError(BrokerResponseError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or over the number of brokers."""


class InvalidConfigError(BrokerResponseError, code=ErrorCode.INVALID_CONFIG):
    """A topic or broker setting has a value that the broker refuses."""


class InvalidRequestError(BrokerResponseError, code=ErrorCode.INVALID_REQUEST):
    """The broker finds the request wrong in itself."""


class UnsupportedForMessageFormatError(
    BrokerResponseError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
):
    """The topic's record format is too old for the request."""


class PolicyViolationError(BrokerResponseError, code=ErrorCode.POLICY_VIOLATION):
    """The request breaks a policy of the broker."""


class OutOfOrderSequenceNumberError(
    BrokerResponseError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
):
    """An idempotent producer's sequence number left a gap."""


class DuplicateSequenceNumberError(BrokerResponseError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """An idempotent producer's batch is there already."""


class InvalidProducerEpochError(BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A newer producer of the same id has taken over."""


class InvalidTxnStateError(BrokerResponseError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMappingError(
    BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING
):
    """The producer id is not the transactional id's."""


class InvalidTransactionTimeoutError(
    BrokerResponseError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT
):
    """The transaction timeout is over the broker's maximum."""


class ConcurrentTransactionsError(
    BrokerResponseError, code=ErrorCode.CONCURRENT_TRANSACTIONS, retriable=True
):
    """The last transaction of this producer is still being ended."""


class TransactionalIdAuthorizationFailedError(
    BrokerResponseError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """Not allowed to use the transactional id."""


class KafkaStorageError(
    BrokerResponseError, code=ErrorCode.KAFKA_STORAGE_ERROR, retriable=True, refresh_metadata=True
):
    """The broker's disk failed under the partition."""


class SaslAuthenticationFailedError(
    BrokerResponseError, SecurityError, code=ErrorCode.SASL_AUTHENTICATION_FAILED
):
    """The broker refused the credentials."""


class UnknownProducerIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker knows nothing of the producer id."""


class NonEmptyGroupError(BrokerResponseError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members."""


class GroupIdNotFoundError(BrokerResponseError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """There is no group of that id (or of that type)."""


class FetchSessionIdNotFoundError(
    BrokerResponseError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, retriable=True
):
    """The broker has dropped the fetch session."""


class InvalidFetchSessionEpochError(
    BrokerResponseError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, retriable=True
):
    """The fetch session is at another epoch."""


class FencedLeaderEpochError(
    BrokerResponseError, code=ErrorCode.FENCED_LEADER_EPOCH, retriable=True, refresh_metadata=True
):
    """The request carries a leader epoch that is over: metadata is stale."""


class UnknownLeaderEpochError(
    BrokerResponseError, code=ErrorCode.UNKNOWN_LEADER_EPOCH, retriable=True
):
    """The broker has not seen this leader epoch yet."""


class UnsupportedCompressionTypeError(
    BrokerResponseError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
):
    """The version in use cannot carry batches of this codec."""


class OffsetNotAvailableError(
    BrokerResponseError, code=ErrorCode.OFFSET_NOT_AVAILABLE, retriable=True
):
    """A new leader cannot tell its high watermark yet."""


class MemberIdRequiredError(BrokerResponseError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """Join again with the member id of this answer (KIP-394)."""


class GroupMaxSizeReachedError(BrokerResponseError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has as many members as the broker allows."""


class FencedInstanceIdError(BrokerResponseError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member took over this group_instance_id (KIP-345)."""


class InvalidRecordError(BrokerResponseError, code=ErrorCode.INVALID_RECORD):
    """The broker found a record that the topic does not take."""


class UnstableOffsetCommitError(
    BrokerResponseError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT, retriable=True
):
    """Offsets of an open transaction are not decided yet."""


class ThrottlingQuotaExceededError(
    BrokerResponseError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True
):
    """Over the quota."""


class ProducerFencedError(BrokerResponseError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer of the same transactional id has taken over."""


class ResourceNotFoundError(BrokerResponseError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """No such resource."""


class UnknownTopicIdError(
    BrokerResponseError, code=ErrorCode.UNKNOWN_TOPIC_ID, retriable=True, refresh_metadata=True
):
    """The broker knows no topic of this id."""


class InconsistentTopicIdError(
    BrokerResponseError, code=ErrorCode.INCONSISTENT_TOPIC_ID, retriable=True, refresh_metadata=True
):
    """The topic id is not the one the broker has for the name."""


class FetchSessionTopicIdError(
    BrokerResponseError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, retriable=True
):
    """The fetch session mixes topic names and ids."""


class OffsetMovedToTieredStorageError(
    BrokerResponseError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
):
    """The offset lives in tiered storage now."""


class FencedMemberEpochError(BrokerResponseError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The member epoch is over: rejoin (KIP-848)."""


class UnreleasedInstanceIdError(BrokerResponseError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """Another member still holds this group_instance_id (KIP-848)."""


class UnsupportedAssignorError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The group has no such server-side assignor (KIP-848)."""


class StaleMemberEpochError(BrokerResponseError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch is behind: heartbeat, then retry (KIP-848)."""


class InvalidRegularExpressionError(BrokerResponseError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The broker cannot read the topic pattern."""


class RebootstrapRequiredError(BrokerResponseError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The broker asks the client to start again from its bootstrap servers (KIP-1102)."""
