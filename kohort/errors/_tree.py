"""The errors that kohort raises of itself; the drawing is in the package's docstring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kohort.types import LazyModule, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid
else:
    uuid = LazyModule("uuid")


class KafkaError(Exception):
    """The root of all errors of kohort."""

    retriable: ClassVar[bool] = False
    """The same call may succeed later without any change."""


class ConfigurationError(KafkaError, ValueError):
    """An option is wrong; the message says which, and what would be right."""


class UnknownOptionError(ConfigurationError, TypeError):
    """No option has this name. Also a TypeError, as for an unexpected keyword argument."""


class InvalidOptionError(ConfigurationError):
    """An option has a value of the wrong type or outside its range."""


class UnsupportedOptionError(ConfigurationError):
    """An option of Kafka's that kohort knows of and does not have yet; it is never ignored."""


class IllegalStateError(KafkaError, RuntimeError):
    """The object's state does not allow the call."""


class ConsumerClosedError(IllegalStateError):
    """The consumer is closed."""


class ReentrantCallError(IllegalStateError):
    """The call is not allowed from inside a listener, deserializer or assignor."""


class ForkedConsumerError(IllegalStateError):
    """A consumer made before fork() was used in the child: make a new one there."""


class ThreadStartError(KafkaError, RuntimeError):
    """The system or the exiting interpreter refused a thread; nothing was started."""

    retriable = True


class WakeupError(KafkaError):
    """wakeup() was called: the call that waited, or the next one that may wait, ends with this."""


class NotAssignedError(IllegalStateError):
    """The partition is not assigned to this consumer (any more)."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """The call was not done within its time."""

    retriable = True


class OffsetsTimeoutError(KafkaTimeoutError):
    """Not all of the offsets asked for came within the time; ``found`` holds those that did.

    Of a partition without a leader none comes, and it need not hold up the others.
    """

    def __init__(
        self, message: str, *, found: Mapping[TopicPartition, OffsetAndTimestamp | None]
    ) -> None:
        super().__init__(message)
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = dict(found)


class TransportError(KafkaError):
    """The network failed, or what came over it is not the Kafka protocol."""


class KafkaConnectionError(TransportError, ConnectionError):
    """A broker could not be reached, or the connection to it was lost."""

    retriable = True


class NoBrokersAvailable(TransportError, KafkaTimeoutError):
    """Timeout: no bootstrap address was reachable for ``bootstrap_timeout_ms``.

    The message says for each address which step failed.
    """

    retriable = True


class ProtocolError(TransportError):
    """What came over the wire breaks the protocol; the connection is closed."""


class FrameTooLargeError(ProtocolError):
    """A length prefix is negative or over the bound; nothing was allocated for it."""


class MessageDecodeError(ProtocolError):
    """A frame does not decode as the message it should be."""


class MessageEncodeError(ProtocolError, ValueError):
    """A message cannot be written in the version in use."""


class CorrelationIdError(ProtocolError):
    """An answer does not carry the correlation id of the request it should answer."""


class SecurityError(KafkaError):
    """TLS, a login or a token failed. The message says what to change.

    The same settings fail again, so it is raised at the first contact with the cluster.
    """


class TlsError(SecurityError, TransportError):
    """The TLS handshake with a broker failed."""


class TlsVerificationError(TlsError):
    """The certificate of a broker is not accepted.

    Its CA is unknown, it is for another host, it expired, is not valid yet, or is revoked.
    """


class TlsClientCertificateError(TlsError):
    """A broker requires a client certificate, or does not accept the one it was sent."""


class WrongListenerError(SecurityError, TransportError):
    """A listener uses another security protocol than ``security_protocol`` says."""


class SaslServerError(SecurityError, TransportError):
    """A broker broke the rules of the SASL mechanism, such as a SCRAM server without a proof."""


class OAuthTokenError(SecurityError):
    """Missing OAuth token: its provider failed, or the token is malformed or about to expire.

    ``__cause__`` is the error of the provider.
    """


class CredentialsUnavailableError(SecurityError, KafkaTimeoutError):
    """The source of passwords, tickets or tokens failed for now; a later login tries again.

    It is raised in place of NoBrokersAvailable, if it kept every bootstrap server from a login.
    """

    retriable = True


class OAuthTokenUnavailableError(OAuthTokenError, CredentialsUnavailableError):
    """The token provider or the token endpoint failed for now; a later login tries again."""

    retriable = True


class DataError(KafkaError):
    """Something is wrong with one partition's data; other partitions go on.

    ``topic_partition`` says where, ``offset`` is the first offset concerned, ``raw`` the bytes as
    they came (None where there are none), ``reason`` what is wrong without what to do about it.
    ``seek(topic_partition, next_offset)`` passes over it.
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
        self.topic_partition = topic_partition
        self.offset = offset
        self.next_offset = next_offset
        self.raw = raw


class CorruptBatchError(DataError):
    """A record batch contradicts itself (CRC, magic, lengths, counts). See :class:`DataError`."""


class UnsupportedCodecError(CorruptBatchError):
    """The batch names a compression codec that does not exist or is not installed."""


class DecompressionBudgetError(CorruptBatchError):
    """The batch would decompress to more than the byte budget; it is not corrupt as such."""


class RecordDeserializationError(DataError):
    """The key or value deserializer raised; ``__cause__`` is what it raised (KIP-1036)."""


class NoOffsetForPartitionError(DataError):
    """Nothing is committed and ``auto_offset_reset="none"``: seek, or commit first."""


class LogTruncationError(DataError):
    """An unclean election cut off what was read already (KIP-320); it stands until a seek().

    ``diverging_offset`` is where the log of the new leader ends or goes another way, at the
    latest, and ``diverging_epoch`` the leader epoch there; ``next_offset`` is the same offset.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition | None = None,
        offset: int | None = None,
        diverging_offset: int | None = None,
        diverging_epoch: int = -1,
    ) -> None:
        super().__init__(
            message, topic_partition=topic_partition, offset=offset, next_offset=diverging_offset
        )
        self.diverging_offset = diverging_offset
        self.diverging_epoch = diverging_epoch


class TopicRecreatedError(DataError):
    """The topic was deleted and created again; the error stands until a seek().

    ``offset`` is the last position, which belongs to the old topic. The ids are those of Kafka
    (KIP-516). With ``auto_offset_reset`` "earliest" or "latest" the new topic is read from its
    beginning instead.
    """

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
    """Something about the membership of a consumer group."""


class CommitFailedError(GroupError):
    """The group moved on before the commit: these partitions may belong to another member now.

    ``offsets`` are the ones that did not count. Go on polling: the consumer rejoins by itself.
    """

    def __init__(
        self, message: str, *, offsets: Mapping[TopicPartition, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.offsets: Mapping[TopicPartition, Any] = dict(offsets or {})


class RebalanceListenerError(GroupError):
    """A rebalance listener raised; the rebalance itself went on. ``__cause__`` is the original."""

    def __init__(
        self, message: str, *, callback: str, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(message)
        self.callback = callback
        self.partitions = partitions


class AssignorError(GroupError):
    """An assignor raised, or assigned what was not there to assign."""


class MaxPollIntervalExceededError(GroupError):
    """poll() was not called for ``max_poll_interval_ms``, so the consumer left its group."""
