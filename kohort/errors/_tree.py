"""Error classes that kohort raises itself. The docstring of the package shows the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kohort.errors.addresses import note_of
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid
else:
    uuid = LazyModule("uuid")


class KafkaError(Exception):
    """Base class of all errors that kohort raises.

    A traceback ends with a note that names the section of the class in the documentation. The note
    is in ``__notes__``, so ``str(error)`` has the message alone.
    """

    retriable: ClassVar[bool] = False
    """True if the same call may succeed later without a change."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(note_of(type(self)))


class ConfigurationError(KafkaError, ValueError):
    """Error in an option. The message names the option and a valid value."""


class UnknownOptionError(ConfigurationError, TypeError):
    """Option name that does not exist. It is also a TypeError, as for an unexpected keyword."""


class InvalidOptionError(ConfigurationError):
    """Option value of the wrong type or outside its range."""


class UnsupportedOptionError(ConfigurationError):
    """Kafka option that kohort knows and does not support yet. kohort never ignores an option."""


class IllegalStateError(KafkaError, RuntimeError):
    """Call that the state of the object does not allow."""


class ConsumerClosedError(IllegalStateError):
    """Call on a closed consumer."""


class ReentrantCallError(IllegalStateError):
    """Call from inside a listener, deserializer or assignor that is not allowed there."""


class ForkedConsumerError(IllegalStateError):
    """Call in a child process on a consumer of its parent, after fork()."""


class ThreadStartError(KafkaError, RuntimeError):
    """Refusal of a thread by the system or by the exiting interpreter. Nothing was started."""

    retriable = True


class WakeupError(KafkaError):
    """End of a call that waited, because wakeup() was called.

    If no call waits, the next call that may wait raises it.
    """


class NotAssignedError(IllegalStateError):
    """Call for a partition that is not assigned to this consumer."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """Call that did not finish within its time limit."""

    retriable = True


class OffsetsTimeoutError(KafkaTimeoutError):
    """Offset lookup that did not get all offsets in time. ``found`` holds those that arrived.

    A partition without a leader has no offset and does not delay the other partitions.
    """

    def __init__(
        self, message: str, *, found: Mapping[TopicPartition, OffsetAndTimestamp | None]
    ) -> None:
        super().__init__(message)
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = dict(found)


class TransportError(KafkaError):
    """Failure of the network, or bytes that are not the Kafka protocol."""


class KafkaConnectionError(TransportError, ConnectionError):
    """Failure to connect to a broker, or loss of the connection."""

    retriable = True


class ProxyConnectionError(KafkaConnectionError):
    """Failure to connect to the proxy, or a response of the proxy that is not its protocol."""


class NoBrokersAvailable(TransportError, KafkaTimeoutError):
    """No bootstrap server was reachable for ``bootstrap_timeout_ms``.

    The message names the step that failed for each address.
    """

    retriable = True


class ProtocolError(TransportError):
    """Violation of the Kafka protocol in received bytes. The connection is closed."""


class FrameTooLargeError(ProtocolError):
    """Frame with a length prefix that is negative or above the limit. It is not read."""


class MessageDecodeError(ProtocolError):
    """Frame that cannot be decoded as the expected message."""


class MessageEncodeError(ProtocolError, ValueError):
    """Message that cannot be encoded in the version in use."""


class CorrelationIdError(ProtocolError):
    """Response with a correlation id that is not that of the request."""


class SecurityError(KafkaError):
    """Failure of TLS, of a login or of a token. The message says which setting to change.

    It is raised at the first contact with the cluster, because the same settings would fail again.
    """


class TlsError(SecurityError, TransportError):
    """Failure of the TLS handshake with a broker."""


class TlsVerificationError(TlsError):
    """Rejection of the broker's certificate.

    Its CA is unknown, it names another host, it has expired, is not valid yet, or is revoked.
    """


class TlsClientCertificateError(TlsError):
    """Client certificate that is missing or that the broker rejects."""


class WrongListenerError(SecurityError, TransportError):
    """Listener with another security protocol than the option ``security_protocol``."""


class ProxyAuthenticationFailedError(SecurityError, TransportError):
    """Refusal of the login at the proxy, or a proxy that wants a login and got none."""


class ProxyRefusedError(SecurityError, TransportError):
    """Refusal of a proxy to connect to a broker, by its rules."""


class SaslServerError(SecurityError, TransportError):
    """Violation of the SASL mechanism by a broker, such as a SCRAM server without a proof."""


class OAuthTokenError(SecurityError):
    """OAuth token that is missing, malformed or about to expire.

    If the token provider raised, ``__cause__`` is its error.
    """


class CredentialsUnavailableError(SecurityError, KafkaTimeoutError):
    """Temporary failure of the source of passwords, tickets or tokens. A later login retries.

    It replaces NoBrokersAvailable if it prevented the login to every bootstrap server.
    """

    retriable = True


class OAuthTokenUnavailableError(OAuthTokenError, CredentialsUnavailableError):
    """Temporary failure of the token provider or token endpoint. A later login retries."""

    retriable = True


class DataError(KafkaError):
    """Error in the data of one partition. Other partitions are not affected.

    ``topic_partition`` and ``offset`` name the partition and the first affected offset. ``offset``
    is None only if there is no position. ``raw`` holds the received bytes, or None if there are
    none. ``reason`` is the cause without advice. ``seek(topic_partition, next_offset)`` skips the
    data.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
        raw: bytes | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.reason: str = reason or message
        # The decoders raise without a partition. The fetcher adds it before poll() raises.
        self.topic_partition: TopicPartition = topic_partition  # type: ignore[assignment]
        self.offset: int | None = offset
        self.next_offset: int | None = next_offset
        self.raw = raw


class CorruptBatchError(DataError):
    """Record batch that contradicts its CRC, magic, lengths or counts. See :class:`DataError`."""

    offset: int


class UnsupportedCodecError(CorruptBatchError):
    """Record batch with a compression codec that does not exist or is not installed."""


class DecompressionBudgetError(CorruptBatchError):
    """Record batch that exceeds the byte budget when decompressed. It need not be corrupt."""


class RecordDeserializationError(DataError):
    """Failure of the key or value deserializer. ``__cause__`` is its error (KIP-1036).

    ``raw`` holds the bytes that do not deserialize, which are those of the key or of the value.
    ``key``, ``value``, ``headers`` and ``timestamp`` are those of the record as it was received.
    """

    offset: int
    next_offset: int

    key: bytes | None = None
    """Bytes of the key, or None for a record without a key."""

    value: bytes | None = None
    """Bytes of the value, or None for a record without a value."""

    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers of the record, in its order."""

    timestamp: int = -1
    """Timestamp of the record in milliseconds since 1970 UTC, or -1 without one."""


class DeserializerNotReadyError(KafkaError):
    """Need of a deserializer for I/O, such as loading a schema.

    A deserializer raises it in place of doing I/O. ``poll()`` calls :attr:`prepare` without a lock,
    in a worker thread in the async API, and decodes the record again. ``on_error`` does not apply.
    What ``prepare()`` raises, ``poll()`` raises, and the record stays unread.
    """

    def __init__(self, message: str, *, prepare: Callable[[], None]) -> None:
        super().__init__(message)
        self.prepare: Callable[[], None] = prepare


class NoOffsetForPartitionError(DataError):
    """Partition without a committed offset while ``auto_offset_reset="none"``."""


class LogTruncationError(DataError):
    """Loss of records that were already read, after an unclean leader election (KIP-320).

    The error persists until a seek(). The logs of the old and the new leader diverge at or before
    ``diverging_offset``. ``diverging_epoch`` is the leader epoch there. ``next_offset`` equals
    ``diverging_offset``.
    """

    offset: int
    next_offset: int

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        offset: int,
        diverging_offset: int,
        diverging_epoch: int = -1,
    ) -> None:
        super().__init__(
            message, topic_partition=topic_partition, offset=offset, next_offset=diverging_offset
        )
        self.diverging_offset = diverging_offset
        self.diverging_epoch = diverging_epoch


class TopicRecreatedError(DataError):
    """Topic that was deleted and created again. The error persists until a seek().

    ``offset`` is the last position, which belongs to the old topic. The ids are Kafka's topic ids
    (KIP-516). With ``auto_offset_reset`` "earliest" or "latest" the consumer reads the new topic
    from its beginning instead.
    """

    next_offset: int

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        offset: int | None,
        old_topic_id: uuid.UUID,
        new_topic_id: uuid.UUID,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, offset=offset, next_offset=0)
        self.old_topic_id = old_topic_id
        self.new_topic_id = new_topic_id


class GroupError(KafkaError):
    """Failure in the membership of a consumer group."""


class CommitFailedError(GroupError):
    """Commit that the consumer could not make for its current partitions.

    ``offsets`` holds the offsets that were not committed. Another member may own the partitions
    now, or a topic was deleted or recreated. The consumer rejoins while it is polled.
    """

    def __init__(
        self, message: str, *, offsets: Mapping[TopicPartition, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.offsets: Mapping[TopicPartition, Any] = dict(offsets or {})


class OffsetConflictError(GroupError):
    """Stored offset that is not the expected one, so a transaction was rolled back.

    Another program, such as the former owner of the partition, has changed the offset of
    ``topic_partition`` beside the results. ``expected`` is the offset that should have been
    stored. ``stored`` is the one that was found, or None if there is none or it is unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        expected: int,
        stored: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic_partition: TopicPartition = topic_partition
        self.expected: int = expected
        self.stored: int | None = stored


class RebalanceListenerError(GroupError):
    """Failure of a rebalance listener. The rebalance continued.

    ``__cause__`` is the error of the listener.
    """

    def __init__(
        self, message: str, *, callback: str, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(message)
        self.callback = callback
        self.partitions = partitions


class AssignorError(GroupError):
    """Failure of an assignor, or an assignment that does not match members or partitions."""


class GroupHasMembersError(GroupError):
    """Reset of the offsets of a group that has members. ``members`` has their ids."""

    def __init__(self, message: str, *, group_id: str, members: tuple[str, ...]) -> None:
        super().__init__(message)
        self.group_id = group_id
        self.members = members


class OffsetsChangedError(GroupError):
    """Commit of another client between the plan of a reset and its end.

    ``found`` has the offsets that differ from the plan, as they were found.
    """

    def __init__(
        self, message: str, *, found: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        super().__init__(message)
        self.found: dict[TopicPartition, OffsetAndMetadata | None] = dict(found)
