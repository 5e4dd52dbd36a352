"""What process() needs of a consumer beyond its public methods.

All other modules of this package use public names of kohort alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kohort import (
    AsyncKafkaConsumer,
    AsyncShareConsumer,
    KafkaConsumer,
    ProcessingFacts,
    ShareConsumer,
    TopicPartition,
)
from kohort.errors import ConfigurationError, UnknownTopicOrPartitionError
from kohort.listeners import ListenerChain, RebalanceContext
from kohort.processing._dead_letters import DeadLetter, DeadLetters

AnyConsumer = AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any]

OWNER = "process()"
"""Owner of the pauses of process()."""
RESERVE_SECONDS = 2.0
"""Seconds of a rebalance that are kept for the commit after the drain."""


def check_group(consumer: AnyConsumer) -> None:
    """Raise ConfigurationError if the consumer has no group to commit to."""
    if consumer._driver.config.group.group_id is None:
        raise ConfigurationError(
            "process() needs a group, because it commits what is done. Set the option group_id"
        )


async def enter(consumer: AsyncKafkaConsumer[Any, Any], stack: AsyncExitStack) -> None:
    """Start a consumer without a wait, unless it is started, and close it with the stack.

    The program may have an ``async with`` block, which is left after this.
    """
    if consumer._driver.life.is_started:
        stack.push_async_callback(consumer.close)
    else:
        await consumer._driver.enter_block_without_wait()
        stack.push_async_exit(consumer)


def take_over(
    consumer: AnyConsumer,
    *,
    assigned: Callable[..., Any],
    revoked: Callable[..., Any],
    lost: Callable[..., Any],
    facts: Callable[[], ProcessingFacts],
    keeps_bytes: bool,
) -> Callable[[ProcessingFacts], None]:
    """Put the methods of process() around the program's listener, and end the automatic commits.

    Partitions are given up before that listener hears of it, and taken after it, which may have
    sought. ``explain()`` and ``health()`` call ``facts``. With ``keeps_bytes`` records keep the
    bytes of key and value. Return a function that restores the listener of the program, and keeps
    the last facts.
    """
    check_group(consumer)
    driver = consumer._driver
    if keeps_bytes:
        driver.engine.fetcher.keep_bytes()
        driver.discard_iterated()  # these were deserialized without their bytes
    driver.end_auto_commit()
    driver.processing = facts
    runner = driver.callback_runner
    former = runner.listener
    before = SimpleNamespace(
        on_partitions_assigned=_ignore, on_partitions_revoked=revoked, on_partitions_lost=lost
    )
    after = SimpleNamespace(on_partitions_assigned=assigned, on_partitions_revoked=_ignore)
    chain = (before, former, after)
    runner.listener = ListenerChain(*(each for each in chain if each is not None))
    driver.engine.note_subscribe(has_listener=True)

    def give_back(facts: ProcessingFacts) -> None:
        driver.callback_runner.listener = former
        driver.processing = lambda: facts

    return give_back


def _ignore(tps: frozenset[TopicPartition]) -> None:
    """Do nothing at a callback that the other part of the chain handles."""


def drain_seconds(rebalance: RebalanceContext, now: float) -> float:
    """Return the seconds that a rebalance leaves to the handlers of revoked partitions."""
    left = max(0.0, rebalance.deadline - now)
    return max(left - RESERVE_SECONDS, left / 2)


def group_id(consumer: AnyConsumer) -> str:
    """Return the group of a consumer that has one."""
    if isinstance(consumer, (AsyncShareConsumer, ShareConsumer)):
        return consumer._settings.group_id
    return consumer._driver.config.group.group_id or ""


def is_reset(consumer: AnyConsumer) -> bool:
    """Return False if the consumer raises an error for an offset that its log does not have."""
    return consumer._driver.config.fetch.auto_offset_reset != "none"


def position_ids(
    consumer: AnyConsumer, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, UUID | None]:
    """Return the id of the topic that each position belongs to, or None if it is unknown."""
    ids = consumer._driver.engine.subscription.topic_ids(tps)
    return {tp: UUID(bytes=each) if any(each) else None for tp, each in ids.items()}


def buffer_memory(consumer: AnyConsumer) -> int:
    """Return the option ``buffer_memory``, which also limits the records in flight."""
    limit: int = consumer._driver.config.fetch.buffer_memory
    return limit


def wall_clock(consumer: AnyConsumer) -> Callable[[], float]:
    """Return the clock to compare timestamps of records with, in seconds since the epoch."""
    return consumer._driver.config.wall_clock or time.time


def call_soon(consumer: AnyConsumer, action: Callable[[], object]) -> None:
    """Run ``action`` in the event loop of a started consumer, from a signal handler."""
    task = getattr(consumer._driver, "background_task", None)
    if task is not None:
        task.call_soon(action)


async def write_in_task(
    consumer: AsyncKafkaConsumer[Any, Any], letter: DeadLetter, timeout: float
) -> None:
    """Produce a letter over the connections of the consumer, and wait for the broker."""
    await _write(consumer, letter, timeout)


def write_in_thread(consumer: KafkaConsumer[Any, Any], letter: DeadLetter, timeout: float) -> None:
    """Produce a letter in the consumer thread, and wait for it in the thread of a slot."""
    consumer._driver.call_without_limit(partial(_write, consumer, letter, timeout))


async def _write(consumer: AnyConsumer, letter: DeadLetter, timeout: float) -> None:
    await consumer._driver.engine.producer().send(
        letter.topic,
        (letter.timestamp, letter.key, letter.value, letter.headers),
        like=letter.source_partition,
        timeout=timeout,
    )


async def require_topic(consumer: AnyConsumer, letters: DeadLetters) -> None:
    """Wait until the topic of dead letters exists. Raise ConfigurationError if it does not."""
    producer = consumer._driver.engine.producer()
    try:
        await producer.require_topic(letters.topic, create=letters.create)
    except UnknownTopicOrPartitionError as error:
        raise ConfigurationError(
            f"the topic {letters.topic!r} of DeadLetters does not exist. Create it, or use "
            "DeadLetters(..., create=True)"
        ) from error


def start_check(consumer: KafkaConsumer[Any, Any], letters: DeadLetters) -> Any:
    """Start :func:`require_topic` in the consumer thread, and return its future."""
    return consumer._driver.running_thread().call(partial(require_topic, consumer, letters))


class Pauses:
    """The pauses of process(). Those of the program have another owner, so they are left alone."""

    def __init__(self, consumer: AnyConsumer) -> None:
        self._consumer = consumer

    def pause(self, tp: TopicPartition) -> None:
        """Pause a partition, unless it was just revoked."""
        if tp in self._consumer.assignment():
            self._consumer.pause(tp, owner=OWNER)

    def resume(self, tp: TopicPartition) -> None:
        """Resume a partition that :meth:`pause` has paused, unless it was just revoked."""
        if tp in self._consumer.assignment():
            self._consumer.resume(tp, owner=OWNER)
