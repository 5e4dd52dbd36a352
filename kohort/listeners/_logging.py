"""A rebalance listener that logs each callback."""

from __future__ import annotations

import logging

from kohort.listeners._base import ConsumerRebalanceListener
from kohort.listeners._dispatch import describe
from kohort.types import TopicPartition


class LoggingRebalanceListener(ConsumerRebalanceListener):
    """A listener that logs each callback with its partitions.

    Lost partitions are logged as WARNING, or with ``level`` if that is higher.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or logging.getLogger("kohort.rebalance")
        self._level = level

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self._logger.log(self._level, "partitions revoked: %s", describe(revoked))

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self._logger.log(self._level, "partitions assigned: %s", describe(assigned))

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        level = max(self._level, logging.WARNING)
        self._logger.log(level, "partitions lost: %s", describe(lost))
