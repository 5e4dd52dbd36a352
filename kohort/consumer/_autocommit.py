"""Automatic commits at intervals: what has changed, and now and then what has not."""

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
"""Seconds between two commits, whatever the options say."""


class AutoCommit:
    """Commits what the caller is done with, every ``auto_commit_interval_ms``.

    Brokers delete the offsets of a group without members some time after they were committed. So
    what is assigned by hand is committed again, changed or not, every
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
                all_due = now + self._interval  # it may be assigned to by then
            if now >= changed_due:
                await self._commit()
                changed_due = anyio.current_time() + self._interval

    async def _commit(self, *, all_of_them: bool = False) -> bool:
        """Commit what has changed, or all; False if that failed."""
        engine = self._engine
        consumed = engine.consumed_offsets()
        ids = engine.ids_of(consumed)
        # The same offset of a topic that was recreated is another offset.
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
