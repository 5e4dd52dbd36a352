"""What process() needs of a consumer beyond its public methods.

All other modules of this package use public names of kohort alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

from kohort import AsyncKafkaConsumer, KafkaConsumer, ProcessingFacts, TopicPartition
from kohort.errors import ConfigurationError
from kohort.listeners import ListenerChain, RebalanceContext

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
) -> Any:
    """Put the methods of process() around the program's listener, and end the automatic commits.

    Partitions are given up before that listener hears of it, and taken after it, which may have
    sought. ``explain()`` and ``health()`` call ``facts``. Return the listener of the program, for
    :func:`give_back`.
    """
    driver = consumer._driver
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
    return former


def _ignore(tps: frozenset[TopicPartition]) -> None:
    """Do nothing at a callback that the other part of the chain handles."""


def give_back(consumer: AnyConsumer, listener: Any, facts: ProcessingFacts) -> None:
    """Restore the listener of the program, and keep the last facts."""
    consumer._driver.callback_runner.listener = listener
    consumer._driver.processing = lambda: facts


def drain_seconds(rebalance: RebalanceContext, now: float) -> float:
    """Return the seconds that a rebalance leaves to the handlers of revoked partitions."""
    left = max(0.0, rebalance.deadline - now)
    return max(left - RESERVE_SECONDS, left / 2)


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
