"""Types of the consumers' parameters; only type checkers and ``get_type_hints`` import this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from kohort.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DeserializerObject(Protocol[T_co]):
    """Deserializer as an object, as in Kafka's Java client."""

    def deserialize(self, topic: str, headers: Any, data: bytes, /) -> T_co:
        """Return the key or value that these bytes stand for."""


class TopicDeserializerObject(Protocol[T_co]):
    """Deserializer as an object, without headers."""

    def deserialize(self, topic: str, data: bytes, /) -> T_co:
        """Return the key or value that these bytes stand for."""


Deserializer: TypeAlias = Callable[[bytes], T] | DeserializerObject[T] | TopicDeserializerObject[T]
"""Function or object that turns bytes into a key or value."""


class TopicNames(Protocol):
    """Collection of topic names. One ``str`` is no such collection."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""

    def __contains__(self, name: object, /) -> bool:
        """Return True if the topic is among them; ``str`` takes only ``str`` here."""


Topics: TypeAlias = TopicNames | Iterator[str]
"""Several topic names."""
Pattern: TypeAlias = str | re.Pattern[str] | SubscriptionPattern
"""Regular expression for topic names, of Python or of the brokers."""
CommitOffsets: TypeAlias = Mapping[
    TopicPartition, int | OffsetAndMetadata | tuple[int, str] | tuple[int, str, int]
]
"""Offsets to commit: the next offset to read, with metadata and leader epoch if given."""
CommitCallback: TypeAlias = Callable[
    [dict[TopicPartition, OffsetAndMetadata], Exception | None], object
]
"""Function that is called after commit_async()."""
