"""Rebalance listeners as users write them, named by an option."""

from __future__ import annotations

import threading
from typing import ClassVar

from kohort import ConsumerRebalanceListener, TopicPartition
from kohort.listeners import RebalanceContext

Partitions = frozenset[TopicPartition]


class Recording(ConsumerRebalanceListener):
    """A listener that records its calls and their threads."""

    calls: ClassVar[list[tuple[str, set[int], str]]] = []

    def _note(self, what: str, partitions: Partitions) -> None:
        numbers = {tp.partition for tp in partitions}
        self.calls.append((what, numbers, threading.current_thread().name))

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        self._note("revoked", revoked)


class Explained(ConsumerRebalanceListener):
    """A listener that records the causes of rebalances."""

    causes: ClassVar[list[str]] = []

    def on_partitions_assigned(self, assigned: Partitions, rebalance: RebalanceContext) -> None:
        self.causes.append(rebalance.cause)

    def on_partitions_revoked(self, revoked: Partitions, *, rebalance: RebalanceContext) -> None:
        self.causes.append(rebalance.cause)


class Raising(ConsumerRebalanceListener):
    """A listener that raises."""

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        raise LookupError("no such table")


class Choosy(ConsumerRebalanceListener):
    """A listener that needs an argument."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
