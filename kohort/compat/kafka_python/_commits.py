"""Commits that are not waited for, with kafka-python's future and callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future as NativeFuture
from typing import Any

from kohort import KafkaConsumer as NativeConsumer
from kohort.compat.kafka_python import errors
from kohort.compat.kafka_python._errors import CLOSED, translated
from kohort.compat.kafka_python._future import Future
from kohort.compat.kafka_python._values import commit_offsets
from kohort.compat.kafka_python.structs import OffsetAndMetadata, TopicPartition
from kohort.errors import KafkaError


def commit_in_background(
    native: NativeConsumer,
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
    callback: Callable[[Any, Any], Any] | None,
) -> Future:
    """Begin a commit and return its future; ``callback(offsets, error)`` is called later."""

    def report(committed: Mapping[Any, Any], error: Any) -> None:
        if callback is not None:
            positions = {
                TopicPartition(*tp): OffsetAndMetadata(*at) for tp, at in committed.items()
            }
            callback(positions if offsets is None else offsets, _translated(error))

    future = Future()
    chosen = None if offsets is None else commit_offsets(offsets)
    native.commit_async(chosen, report).add_done_callback(lambda done: _finish(future, done))
    return future


def _finish(future: Future, native: NativeFuture[None]) -> None:
    """Pass the result of a native commit on."""
    if native.cancelled():
        future.failure(errors.IllegalStateError(CLOSED))
        return
    error = native.exception()
    if error is None:
        future.success(None)
    else:
        future.failure(_translated(error))


def _translated(error: Any) -> Any:
    return translated(error) if isinstance(error, KafkaError) else error
