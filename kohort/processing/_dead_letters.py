"""Dead letters: copies of failed records in another topic, with Kafka's headers (KIP-1191).

A letter has the bytes of the record, its timestamp and its headers. Six headers of Kafka's share
groups follow, so one tool reads the letters of both. The last header names the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort import ConsumerRecord, ShareRecord
from kohort.errors import (
    ConfigurationError,
    CorruptBatchError,
    DataError,
    IllegalStateError,
    RecordDeserializationError,
)
from kohort.processing._batches import Unreadable

Headers = tuple[tuple[str, bytes | None], ...]

PREFIX: Final = "__dlq.errors."
EXCEPTION: Final = "kohort.exception"
OMITTED: Final = "kohort.value.omitted"
BATCH: Final = "kohort.batch"
MAX_MESSAGE: Final = 4096
"""Characters of an error in a header. A larger one could make the letter too large."""


@dataclass(frozen=True)
class DeadLetter:
    """A failed record, as it is to be written to the topic of dead letters.

    ``key`` and ``value`` are the bytes of the source record, also if deserializers returned other
    objects to the handler. ``timestamp`` is that of the source record, or -1 if it has none.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    source_partition: int
    """Partition of the failed record. kohort uses the same number, modulo the partitions."""

    def without_value(self) -> DeadLetter:
        """Return the letter for a topic that refuses the whole one as too large."""
        size = b"%d" % len(self.value or b"")
        return replace(self, value=None, headers=(*self.headers, (OMITTED, size)))


@dataclass(frozen=True)
class DeadLetters:
    """Policy for ``failed=``: write failed records to a topic, and then count them as done.

    A letter has the bytes of the source record, its timestamp and headers, and six more headers of
    Kafka's share groups (KIP-1191). A record is done when the broker has acknowledged its letter.
    kohort writes it over the connections of the consumer, with an idempotent producer. If that
    fails for ``timeout`` seconds, a warning says so, and it is tried again without limit.

    A record has at least one letter. If a crash follows the letter, or with ``offsets=`` an outage
    of the database, the record is handled again. Then it has a second letter, or a result, too.

    The topic must exist, unless ``create=True`` creates it with the defaults of the brokers.

    ``send`` replaces kohort's producer. It gets a :class:`DeadLetter`, and returns when a broker
    has acknowledged it. With AsyncKafkaConsumer it may be a coroutine function.
    """

    topic: str
    create: bool = False
    timeout: float = 120.0
    send: Callable[[DeadLetter], Any] | None = None

    def __post_init__(self) -> None:
        if type(self.topic) is not str or not self.topic:
            raise ConfigurationError(f"DeadLetters({self.topic!r}) is wrong: use a topic's name")
        if type(self.create) is not bool:
            raise ConfigurationError(
                f"DeadLetters(create={self.create!r}) is wrong: use True or False"
            )
        if type(self.timeout) not in (int, float) or not self.timeout > 0:
            raise ConfigurationError(
                f"DeadLetters(timeout={self.timeout!r}) is wrong: use a number of seconds above 0"
            )
        if self.send is not None and (not callable(self.send) or self.create):
            raise ConfigurationError(
                "DeadLetters(send=...) needs a function of a DeadLetter, which also has to create "
                "the topic. Leave create out"
            )


def letter_of(
    topic: str,
    record: ConsumerRecord[Any, Any] | Unreadable,
    error: Exception,
    attempts: int,
    group: str,
) -> DeadLetter:
    """Return the letter of a record whose handler raised. Raise if its bytes are gone."""
    if isinstance(record, Unreadable):
        return letter_of_bad_data(topic, record, group)
    kept = record._kept_bytes()
    key, value = (record.key, record.value) if kept is None else kept
    if not isinstance(key, (bytes, type(None))) or not isinstance(value, (bytes, type(None))):
        raise IllegalStateError(
            f"the bytes of {record.topic}-{record.partition} offset {record.offset} are gone, "
            "because the record was deserialized before process(). Start the program again"
        )
    place = record.topic, record.partition, record.offset
    if isinstance(record, ShareRecord):
        attempts = record.delivery_count
    added = _headers(place, group, attempts, error)
    return DeadLetter(
        topic, key, value, (*record.headers, *added), record.timestamp, record.partition
    )


def letter_of_bad_data(topic: str, data: Unreadable, group: str) -> DeadLetter:
    """Return the letter of data that poll() could not return."""
    error = data.error
    place = data.topic, data.partition, data.offset
    if isinstance(error, RecordDeserializationError):
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        headers = (*error.headers, *_headers(place, group, 1, cause))
        return DeadLetter(topic, error.key, error.value, headers, error.timestamp, data.partition)
    raw = error.raw if isinstance(error, CorruptBatchError) else None
    headers = (*_headers(place, group, 1, error), (BATCH, b"%d" % data.end))
    return DeadLetter(topic, None, None if raw is None else bytes(raw), headers, -1, data.partition)


def unreadable(error: Exception) -> Unreadable | None:
    """Return the data of an error of poll(), or None if it has none or cannot be passed."""
    if not isinstance(error, DataError) or error.offset is None or error.next_offset is None:
        return None
    if isinstance(error, CorruptBatchError) and error.raw is None:
        return None
    if not isinstance(error, (CorruptBatchError, RecordDeserializationError)):
        return None
    return Unreadable(error, error.offset, error.next_offset)


def _headers(
    place: tuple[str, int, int], group: str, attempts: int, error: Exception
) -> Sequence[tuple[str, bytes]]:
    topic, partition, offset = place
    kind = type(error)
    values = {
        f"{PREFIX}topic": topic,
        f"{PREFIX}partition": str(partition),
        f"{PREFIX}offset": str(offset),
        f"{PREFIX}group": group,
        f"{PREFIX}delivery.count": str(attempts),
        f"{PREFIX}message": (str(error) or kind.__name__)[:MAX_MESSAGE],
        EXCEPTION: f"{kind.__module__}.{kind.__qualname__}",
    }
    return [(name, text.encode(errors="backslashreplace")) for name, text in values.items()]
