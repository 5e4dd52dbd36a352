"""What process() needs of a share consumer beyond its public methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort import (
    AsyncShareConsumer,
    KafkaError,
    ProcessingFacts,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)

AnyShareConsumer = AsyncShareConsumer | ShareConsumer
Failures = dict[TopicPartition, dict[int, KafkaError]]

LIMIT = "share.delivery.count.limit"
LOCK_MS = "share.record.lock.duration.ms"
RENEWS = "share.renew.acknowledge.enable"
LETTERS = "errors.deadletterqueue.topic.name"


def take_over(
    consumer: AnyShareConsumer, *, facts: Callable[[], ProcessingFacts], keeps_bytes: bool
) -> Callable[[ProcessingFacts], None]:
    """Let process() acknowledge in place of polls. Return a function that gives the consumer back.

    ``explain()`` and ``health()`` call ``facts``. With ``keeps_bytes`` records keep the bytes of
    key and value.
    """
    was_implicit = consumer._is_implicit
    consumer._finish_returned()
    consumer._is_implicit = False
    consumer._driver.processing = facts
    if keeps_bytes:
        consumer._delivery.keep_bytes()

    def give_back(facts: ProcessingFacts) -> None:
        consumer._is_implicit, consumer._limit = was_implicit, None
        consumer._driver.processing = lambda: facts

    return give_back


def set_limit(consumer: AnyShareConsumer, limit: int) -> None:
    """Let the next polls return at most as many records."""
    consumer._limit = limit


def has_buffered(consumer: AnyShareConsumer) -> bool:
    """Return True if records wait for a poll, which then returns at once."""
    return consumer._locks.has_buffered


def note_alive(consumer: AnyShareConsumer) -> None:
    """Note that handlers run and no poll does, because as many records as allowed are locked.

    Raises WakeupError, as the poll would.
    """
    consumer._note_call()
    consumer._driver.engine.callback_queue.raise_wakeup()


def has_lost(consumer: AnyShareConsumer, record: ShareRecord[Any, Any]) -> bool:
    """Return True if the lock of a record has ended with its session or its leader."""
    return consumer._has_lost(record)


def flush(consumer: AnyShareConsumer) -> None:
    """Send what is noted now, without a wait."""
    if consumer._client is not None and consumer._driver.life.is_started:
        consumer._start_commit(lambda error: None, None)


def take_failures(consumer: AnyShareConsumer) -> Failures:
    """Return the acknowledgements that failed since the last call."""
    return consumer._locks.take_failures()


async def read_in_task(consumer: AsyncShareConsumer, seconds: float) -> dict[str, str | None]:
    """Return the configs of the group by name. Raises KafkaError."""
    return await consumer._driver.call(consumer._group_configs_plan(seconds))


def read_in_thread(consumer: ShareConsumer, seconds: float) -> dict[str, str | None]:
    """Return the configs of the group by name. Raises KafkaError."""
    return consumer._driver.call(consumer._group_configs_plan(seconds))
