"""Automatic commits at intervals."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.errors import KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

logger = logging.getLogger("kohort.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

SHORTEST = 0.01
"""Minimum seconds between two commits, also if an option asks for less."""


class AutoCommit:
    """Committer of the consumed offsets that changed, every ``auto_commit_interval_ms``.

    Brokers delete the offsets of a group without members after a retention time. For partitions
    of assign(), unchanged offsets are therefore committed again every
    ``offsets_recommit_interval_ms``.
    """

    def __init__(self, engine: Engine) -> None:
        group = engine.config.group
        self._engine = engine
        self._interval = max(group.auto_commit_interval_ms / 1000, SHORTEST)
        self._again_after = math.inf
        if group.offsets_recommit_interval_ms:
            self._again_after = max(group.offsets_recommit_interval_ms / 1000, SHORTEST)
        self._done: dict[TopicPartition, tuple[OffsetAndMetadata, bytes]] = {}

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        now = anyio.current_time()
        changed_due, all_due = now + self._interval, now + self._again_after
        while True:
            await anyio.sleep_until(min(changed_due, all_due))
            now = anyio.current_time()
            if now >= all_due and not self._engine.is_subscribed:
                done = await self._commit(all_of_them=True)
                all_due = now + (self._again_after if done else self._interval)
                changed_due = max(changed_due, now + SHORTEST)
            elif now >= all_due:
                all_due = now + self._interval  # the caller may call assign() until then
            if now >= changed_due:
                await self._commit()
                changed_due = anyio.current_time() + self._interval

    async def _commit(self, *, all_of_them: bool = False) -> bool:
        """Commit the offsets that changed, or all. Return False if the commit failed."""
        engine = self._engine
        consumed = engine.consumed_offsets()
        ids = engine.ids_of(consumed)
        # The same offset of a recreated topic is another position, so the topic id counts.
        entries = {tp: (at, ids[tp]) for tp, at in consumed.items()}
        chosen = {
            tp: at
            for tp, at in consumed.items()
            if all_of_them or self._done.get(tp) != entries[tp]
        }
        try:
            await engine.commit(chosen, engine.auto_commit_timeout, ids=ids)
        except KafkaError as error:
            logger.warning("automatic commit failed: %s", str(error))
            return False
        self._done = entries
        return True
