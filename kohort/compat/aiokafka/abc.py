"""Base class of listeners, ``aiokafka.abc.ConsumerRebalanceListener`` where it is installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from kohort.compat._peer import peer_name
from kohort.compat.aiokafka.structs import TopicPartition

__all__ = ["ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Base class of listeners, whose methods are coroutines or plain functions."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """Finish the work on partitions that are given up."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """Prepare the work on all partitions that are assigned now."""


if not TYPE_CHECKING:
    ConsumerRebalanceListener = (
        peer_name("aiokafka.abc", "ConsumerRebalanceListener") or ConsumerRebalanceListener
    )
