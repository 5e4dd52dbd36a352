"""Automatic commits at intervals: what has changed since the commit before."""

from __future__ import annotations

import logging
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


class AutoCommits:
    """Commits what the caller is done with, every ``auto_commit_interval_ms``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._interval = max(engine.config.group.auto_commit_interval_ms / 1000, SHORTEST)
        self._done: dict[TopicPartition, tuple[OffsetAndMetadata, bytes]] = {}

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        while True:
            await anyio.sleep(self._interval)
            await self._commit(self._engine.consumed())

    async def _commit(self, consumed: Offsets) -> None:
        engine = self._engine
        ids = engine.ids_of(consumed)
        # The same offset of a topic that was recreated is another offset.
        entries = {tp: (at, ids[tp]) for tp, at in consumed.items()}
        new = {tp: at for tp, at in consumed.items() if self._done.get(tp) != entries[tp]}
        try:
            await engine.commit(new, engine.commit_seconds, ids=ids)
        except KafkaError as error:
            logger.warning("automatic commit failed: %s", error)
        else:
            self._done = entries
