"""The demo's account: what was written, who read what, and whether that is all."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from kohort.cli.demo._flights import CarrierFigures

Place = tuple[int, int]
"""Partition and offset."""


class Reading(NamedTuple):
    """One record as a member told of it: minutes of delay are None where unknown."""

    partition: int
    offset: int
    carrier: str
    delay: float | None


class Ledger:
    """Who read which offset of which partition; ``ends`` are the ends of the partitions."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.total = sum(ends.values())
        self.readers: dict[Place, list[str]] = {}
        self.by_member: Counter[str] = Counter()
        self.partitions_of: defaultdict[str, set[int]] = defaultdict(set)
        self._carriers: dict[str, list[int]] = {}

    def add(self, member: str, reading: Reading) -> None:
        """A member read a record."""
        place = (reading.partition, reading.offset)
        self.by_member[member] += 1
        self.partitions_of[member].add(reading.partition)
        readers = self.readers.setdefault(place, [])
        if not readers:
            figures = self._carriers.setdefault(reading.carrier, [0, 0, 0])
            figures[0] += 1
            if reading.delay is not None:
                figures[1] += 1
                figures[2] += int(reading.delay)
        readers.append(member)

    @property
    def complete(self) -> bool:
        """True when as many different records were read as were written."""
        return len(self.readers) >= self.total

    @property
    def fraction(self) -> float:
        """How much of it was read, 0 to 1."""
        return len(self.readers) / max(1, self.total)

    def covered_by(self, committed: dict[int, int]) -> bool:
        """True if the committed offsets are the ends. A partition without records needs none."""
        return {partition: committed.get(partition, 0) for partition in self.ends} == self.ends

    def missing(self, partition: int) -> int:
        """Records of a partition that nobody read."""
        return sum(
            (partition, offset) not in self.readers for offset in range(self.ends[partition])
        )

    def never_written(self) -> int:
        """Places read that were not written."""
        return sum(
            partition not in self.ends or not 0 <= offset < self.ends[partition]
            for partition, offset in self.readers
        )

    def duplicates(self) -> dict[Place, list[str]]:
        """Places read more than once, and by whom in turn."""
        return {place: readers for place, readers in self.readers.items() if len(readers) > 1}

    def by_carrier(self) -> dict[str, CarrierFigures]:
        """What the records, each counted once, add up to."""
        return {carrier: CarrierFigures(*figures) for carrier, figures in self._carriers.items()}

    def faults(self, killed: str, committed: dict[int, int]) -> list[str]:
        """Everything that is not as it must be; empty if all is well."""
        found = [
            f"partition {partition}: {count} records were not read"
            for partition in self.ends
            if (count := self.missing(partition))
        ]
        if count := self.never_written():
            found.append(f"{count} places were read that were never written")
        strays = [place for place, who in self.duplicates().items() if killed not in who[:-1]]
        if strays:
            found.append(
                f"{len(strays)} records were read twice though no killed member had them, such as "
                f"partition {strays[0][0]} offset {strays[0][1]}"
            )
        if not self.covered_by(committed):
            found.append(f"the group's offsets {committed} are not the ends {self.ends}")
        return found
