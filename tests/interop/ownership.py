"""Times at which a member got and gave up its partitions, and a check that no owners overlap."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import aiokafka.abc
import kafka

import kohort


class Change(NamedTuple):
    """Change of one partition's owner. ``at`` is in seconds since 1970."""

    at: float
    is_gain: bool
    partition: int


class Ownership:
    """Changes that one member reported, in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def gain(self, partitions: Iterable[int], at: float | None = None) -> None:
        """Note that the member may read these partitions."""
        self._note(partitions, at, is_gain=True)

    def lose(self, partitions: Iterable[int], at: float | None = None) -> None:
        """Note that the member gives these partitions up."""
        self._note(partitions, at, is_gain=False)

    def owned(self) -> frozenset[int]:
        """Return the partitions that the member owns after the last change."""
        owned: set[int] = set()
        for change in self.changes:
            (owned.add if change.is_gain else owned.discard)(change.partition)
        return frozenset(owned)

    def _note(self, partitions: Iterable[int], at: float | None, is_gain: bool) -> None:
        at = time.time() if at is None else at
        self.changes += [Change(at, is_gain, partition) for partition in partitions]


class _Noting:
    """Calls of a listener, which are the same in kohort, aiokafka and kafka-python."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._ownership.gain(tp.partition for tp in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._ownership.lose(tp.partition for tp in revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._ownership.lose(tp.partition for tp in lost)


class KohortListener(_Noting, kohort.ConsumerRebalanceListener):
    """Listener for kohort."""


class AioKafkaListener(_Noting, aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
    """Listener for aiokafka."""


class KafkaPythonListener(_Noting, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Listener for kafka-python."""


def overlaps(changes: Mapping[str, Iterable[Change]]) -> list[str]:
    """Return a sentence for each time that a partition had two owners.

    ``changes`` has the changes of all members by name.
    """
    owners: dict[int, set[str]] = {}
    found = []
    ordered = sorted((change, name) for name, some in changes.items() for change in some)
    for change, name in ordered:
        present = owners.setdefault(change.partition, set())
        if not change.is_gain:
            present.discard(name)
            continue
        if present - {name}:
            others = ", ".join(sorted(present - {name}))
            found.append(f"{name} got {change.partition} at {change.at:.3f} beside {others}")
        present.add(name)
    return found
