"""Where to start: the committed offset, else the rule of ``auto_offset_reset``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import anyio

from kohort.errors import (
    KafkaError,
    NoOffsetForPartitionError,
    NotAssignedError,
    SecurityError,
)
from kohort.subscription import NO_ID, OffsetReset
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

logger = logging.getLogger("kohort.consumer")

FIRST_LOOK, LAST_LOOK = 0.002, 0.1
"""Seconds between looks at a reset that is under way; doubled from the first to the last."""


class _Found(NamedTuple):
    """What is known of one partition's position."""

    position: int | None
    epoch: int
    reset: OffsetReset | None
    first: bool
    leaving: bool
    error: KafkaError | None


class PositionFinder:
    """Gives every assigned partition a position, as soon as it may have one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted = anyio.Event()

    def wake(self) -> None:
        """Something was assigned."""
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        backoff = self._engine.config.client.retry_backoff_max_ms / 1000
        while True:
            self._wanted = anyio.Event()
            missing = self._engine.subscription.awaiting_position()
            if not missing or self._engine.host.assigning:
                await self._wanted.wait()
                continue
            try:
                await self._look_up(missing)
            except KafkaError as error:
                # Refusals of brokers are reported once, by the cluster client.
                if error.retriable or isinstance(error, SecurityError):
                    logger.info("no committed offsets yet: %s", str(error))
                else:
                    self._engine.mailbox.report(error)
                with anyio.move_on_after(max(backoff, LAST_LOOK)):
                    await self._wanted.wait()

    async def find(self, tp: TopicPartition) -> int:
        """The position of one partition, also from inside a listener. NotAssignedError."""
        pause = FIRST_LOOK
        while True:
            found = self._look(tp)
            if found.position is not None:
                return found.position
            if found.leaving:
                return await self._of_leaving(tp, found.reset)
            if found.reset is None:
                await self._look_up({tp: found.epoch})
                continue
            rule = self._engine.starts.of(tp) if found.first else found.reset
            if rule == OffsetReset.NONE:
                raise _nowhere(tp)
            if found.error is not None and not found.error.retriable:
                raise found.error
            # The fetcher sees to the reset.
            self._engine.fetcher.wake()
            await anyio.sleep(pause)
            pause = min(2 * pause, LAST_LOOK)

    def _look(self, tp: TopicPartition) -> _Found:
        subscription = self._engine.subscription
        with subscription.lock:
            state = subscription.partition(tp)
            if state is None:
                raise NotAssignedError(f"{tp.topic}-{tp.partition} is not assigned")
            return _Found(
                state.position,
                state.epoch,
                state.reset,
                state.first,
                state.leaving,
                state.last_error,
            )

    async def _of_leaving(self, tp: TopicPartition, reset: OffsetReset | None) -> int:
        """Where a partition would have started that is being revoked before it ever did."""
        committed = await self._committed([tp])
        at = committed.get(tp)
        if at is not None and reset is None:
            return at.offset
        default = self._engine.subscription.default_reset
        strategy = reset or self._engine.starts.of(tp) or default
        if strategy == OffsetReset.NONE:
            raise _nowhere(tp)
        return await self._engine.start_of(tp, strategy)

    async def _committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self._engine.coordinator is None:
            return {}
        return await self._engine.committed(partitions, None)

    async def _look_up(self, missing: dict[TopicPartition, int]) -> None:
        subscription = self._engine.subscription
        # The ids of now: a topic that is recreated meanwhile is not what was asked for.
        ids = subscription.topic_ids(missing)
        committed = await self._committed(list(missing))
        history = subscription.history
        for tp, epoch in missing.items():
            at = committed.get(tp)
            if history.of(tp.topic) != ids[tp] != NO_ID:
                continue  # recreated meanwhile: asked for again
            if at is not None:
                topic_id = history.certain(tp.topic)
                subscription.set_position(
                    tp, at.offset, at.leader_epoch, epoch=epoch, topic_id=topic_id
                )
            else:
                subscription.reset_if_unknown(tp, epoch=epoch)
        self._engine.fetcher.wake()
        self._engine.mailbox.notify()  # start() may be waiting for it


def _nowhere(tp: TopicPartition) -> NoOffsetForPartitionError:
    return NoOffsetForPartitionError(
        f"{tp.topic}-{tp.partition} has no committed offset to start at, and auto_offset_reset is "
        f'"none": seek({tp}, ...), or commit an offset first',
        topic_partition=tp,
    )
