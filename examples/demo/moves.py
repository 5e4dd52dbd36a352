"""Moves of partitions between members, from rebalance to rebalance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Moment(NamedTuple):
    """Time from which each partition has one owner. ``after`` names the cause."""

    seconds: float
    after: str
    owners: dict[str, frozenset[int]]


class Moves:
    """Owners of partitions, from the callbacks of all members of a cooperative group."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._all = frozenset(partitions)
        self._owners: dict[str, frozenset[int]] = {}
        self._ends: dict[str, str] = {}
        self.moments: list[Moment] = []

    def record_callback(
        self, callback: str, member: str, named: Iterable[int], seconds: float
    ) -> None:
        """Record a callback. ``named`` has the added partitions, or the revoked or lost ones."""
        before = self._owners.get(member, frozenset())
        after = before.union(named) if callback == "assigned" else before.difference(named)
        self._owners[member] = after
        self._add_moment(seconds)

    def record_end(self, member: str, how: str) -> None:
        """Record the end of a member. After SIGKILL no callback reports its partitions."""
        self._ends[member] = how
        if how == "killed":
            del self._owners[member]

    def _add_moment(self, seconds: float) -> None:
        owners = {name: own for name, own in self._owners.items() if own}
        if sum(map(len, owners.values())) != len(self._all):
            return
        before = self.moments[-1].owners if self.moments else {}
        if frozenset[int]().union(*owners.values()) == self._all and owners != before:
            news = [f"{name} joined" for name in sorted(owners.keys() - before.keys())]
            news += [f"{name} {self._ends.pop(name)}" for name in sorted(self._ends)]
            self.moments.append(Moment(seconds, ", ".join(news), owners))
