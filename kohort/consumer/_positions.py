"""Where to start: the committed offset, else the rule of ``auto_offset_reset``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from kohort.errors import KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine


class PositionFinder:
    """Gives every assigned partition a position, as soon as it may have one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted = anyio.Event()
        self._found = anyio.Event()

    def wake(self) -> None:
        """Something was assigned."""
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        backoff = self._engine.config.client.retry_backoff_max_ms / 1000
        while True:
            self._wanted = anyio.Event()
            missing = self._engine.subscription.awaiting_position()
            if missing and not self._engine.host.assigning:
                try:
                    await self._look_up(missing)
                except KafkaError as error:
                    self._engine.mailbox.report(error)
                    with anyio.move_on_after(backoff):
                        await self._wanted.wait()
                    continue
            else:
                await self._wanted.wait()

    async def find(self, tp: TopicPartition) -> int:
        """The position of one partition, also from inside the assignment callback."""
        engine = self._engine
        while True:
            found = self._found
            position = engine.subscription.position(tp)
            if position is not None:
                return position
            missing = engine.subscription.awaiting_position()
            if tp in missing:
                await self._look_up({tp: missing[tp]})
                continue
            # A reset is under way, which the fetcher sees to.
            engine.fetcher.wake()
            with anyio.move_on_after(0.02):
                await found.wait()

    async def _look_up(self, missing: dict[TopicPartition, int]) -> None:
        subscription = self._engine.subscription
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if self._engine.coordinator is not None:
            committed = await self._engine.committed(missing, None)
        for tp, epoch in missing.items():
            at = committed.get(tp)
            if at is not None:
                subscription.set_position(tp, at.offset, at.leader_epoch, epoch=epoch)
            elif subscription.awaiting_position().get(tp) == epoch:
                subscription.request_reset(tp)
        self._engine.fetcher.wake()
        event, self._found = self._found, anyio.Event()
        event.set()
