"""A buffer and its subscription, with the steps of a caller and of the fetcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kohort.errors import KafkaError
from kohort.fetcher import FetchBuffer
from kohort.fetcher.buffer._completed import CompletedFetch, FailedFetch
from kohort.fetcher.buffer._deserialize import record_deserializer
from kohort.types import TopicPartition
from tests.fetcher.making import fetched, offsets, owning, with_room


class Bench:
    """A subscription, its buffer, and short methods that add and drain data."""

    def __init__(
        self,
        *partitions: TopicPartition,
        max_bytes: int = 1 << 20,
        buffered: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Create the subscription with ``options`` and the buffer with ``buffered``."""
        self.subscription = owning(*partitions, **options)
        self.rooms = 0
        self.buffer = FetchBuffer(
            self.subscription, max_bytes=max_bytes, on_room=self._room, **(buffered or {})
        )

    def _room(self) -> None:
        self.rooms += 1

    def put(self, tp: TopicPartition, offset: int, *data: bytes, **options: Any) -> CompletedFetch:
        fetch = fetched(self.subscription, tp, offset, *data, **options)
        self.buffer.queues.append(fetch)
        return fetch

    def fail(self, tp: TopicPartition, error: KafkaError, *, is_transient: bool) -> None:
        self.buffer.queues.append(FailedFetch(tp, self.epoch(tp), error, is_transient=is_transient))

    def epoch(self, tp: TopicPartition) -> int:
        return self.subscription.snapshot().partitions[tp].epoch

    def drain(self, limit: int = 100, **options: Any) -> dict[TopicPartition, list[int]]:
        drained = self.buffer.drain(limit, **options)
        return {tp: offsets(records) for tp, records in drained.items()}

    def position(self, tp: TopicPartition) -> int | None:
        return self.subscription.position(tp)

    def with_room(self) -> set[TopicPartition]:
        targets = with_room(self.buffer, self.subscription)
        return {target.topic_partition for target in targets}


def raising_at(*poison: int, error: Callable[[], BaseException] = LookupError) -> Any:
    """Return a value deserializer that raises for the records at these offsets."""

    def value(topic: str, headers: Any, data: bytes | None) -> Any:
        if int(data or b"-1") in poison:
            raise error()
        return data

    return record_deserializer(None, value)
