"""``DeserializingConsumer``, and the errors of deserializers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.compat._peer import peer_name
from kohort.compat.confluent._builders import Deserializers, run
from kohort.compat.confluent._consumer import Consumer
from kohort.compat.confluent._values import KafkaError, KafkaException, Message

CLUSTER_ID_S = 60.0
"""Longest wait of a deserializer for the id of the cluster."""


class SerializationError(KafkaException):
    """Error of a serializer or deserializer."""

    __module__ = "kohort.compat.confluent"


class ConsumeError(KafkaException):
    """Error in place of a record, or of its deserializer."""

    __module__ = "kohort.compat.confluent"

    def __init__(
        self, kafka_error: Any, exception: Exception | None = None, kafka_message: Any = None
    ) -> None:
        super().__init__(kafka_error)
        self.exception: Exception | None = exception
        self.kafka_message: Any = kafka_message

    @property
    def code(self) -> int:
        """Code of the error."""
        code: int = self.args[0].code()
        return code

    @property
    def name(self) -> str:
        """Name of the code."""
        name: str = self.args[0].name()
        return name


class KeyDeserializationError(ConsumeError, SerializationError):
    """Error of the deserializer of keys."""

    __module__ = "kohort.compat.confluent"

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """Error of the deserializer of values."""

    __module__ = "kohort.compat.confluent"

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class MessageField:
    """Part of a message that a deserializer gets."""

    __module__ = "kohort.compat.confluent"

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """Place of the bytes that a deserializer gets."""

    __module__ = "kohort.compat.confluent"

    def __init__(self, topic: str, field: str, headers: Any = None) -> None:
        self.topic: str = topic
        self.field: str = field
        self.headers: Any = headers


if not TYPE_CHECKING:
    _ERRORS, _SERIALIZATION = "confluent_kafka.error", "confluent_kafka.serialization"
    SerializationError = peer_name(_SERIALIZATION, "SerializationError") or SerializationError
    ConsumeError = peer_name(_ERRORS, "ConsumeError") or ConsumeError
    KeyDeserializationError = (
        peer_name(_ERRORS, "KeyDeserializationError") or KeyDeserializationError
    )
    ValueDeserializationError = (
        peer_name(_ERRORS, "ValueDeserializationError") or ValueDeserializationError
    )
    MessageField = peer_name(_SERIALIZATION, "MessageField") or MessageField
    SerializationContext = peer_name(_SERIALIZATION, "SerializationContext") or SerializationContext


def context_of(message: Message, field: str) -> SerializationContext:
    """Return the context of a part of a message."""
    return SerializationContext(message.topic() or "", field, message.headers())


class DeserializingConsumer(Consumer):
    """A Consumer whose poll() deserializes keys and values.

    The options ``key.deserializer`` and ``value.deserializer`` are callables
    ``(data, SerializationContext)``, such as those of ``confluent_kafka.schema_registry``. Or
    ``key.deserializer.builder`` and ``value.deserializer.builder`` make them, and :meth:`close`
    closes what they made.
    """

    __module__ = "kohort.compat.confluent"

    def __init__(self, conf: dict[str, Any]) -> None:
        self._deserializers = Deserializers(conf)
        try:
            run(self._deserializers.build())
            super().__init__(self._deserializers.options)
        except BaseException:
            run(self._deserializers.close())
            raise
        self._deserializers.set_resolver(
            "set_cluster_id_resolver", lambda: self.cluster_id(timeout=CLUSTER_ID_S)
        )

    def close(self) -> None:
        """Close the consumer as :meth:`Consumer.close` does, then what builders made."""
        super().close()
        run(self._deserializers.close())

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message with its key and value deserialized, or None.

        Raises ConsumeError in place of a message with an error, and KeyDeserializationError or
        ValueDeserializationError, which have the message.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        if message.error() is not None:
            raise ConsumeError(message.error(), kafka_message=message)
        key, value = message.key(), message.value()
        if self._deserializers.key is not None:
            try:
                key = self._deserializers.key(key, context_of(message, MessageField.KEY))
            except Exception as error:
                raise KeyDeserializationError(exception=error, kafka_message=message) from error
        if self._deserializers.value is not None:
            try:
                value = self._deserializers.value(value, context_of(message, MessageField.VALUE))
            except Exception as error:
                raise ValueDeserializationError(exception=error, kafka_message=message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Raise NotImplementedError, as confluent-kafka does. Use poll()."""
        raise NotImplementedError
