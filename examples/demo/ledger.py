"""Account of written records, read records, and their readers."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from examples.demo.flights import CarrierFigures

Place = tuple[int, int]
"""Partition and offset."""


class Reading(NamedTuple):
    """One record in a member's report. An unknown delay is None."""

    partition: int
    offset: int
    carrier: str
    delay: float | None


class Ledger:
    """Readers of each offset of each partition. ``ends`` are the ends of the partitions."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.total = sum(ends.values())
        self.readers: dict[Place, list[str]] = {}
        self.by_member: Counter[str] = Counter()
        self.partitions_of: defaultdict[str, set[int]] = defaultdict(set)
        self._carriers: dict[str, list[int]] = {}

    def add(self, member: str, reading: Reading) -> None:
        """Add a record that a member has read."""
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
        """True if as many different records were read as were written."""
        return len(self.readers) >= self.total

    @property
    def fraction(self) -> float:
        """Fraction of the records that was read, from 0 to 1."""
        return len(self.readers) / max(1, self.total)

    def covered_by(self, committed: dict[int, int]) -> bool:
        """True if the committed offsets are the ends. A partition without records needs none."""
        return {partition: committed.get(partition, 0) for partition in self.ends} == self.ends

    def missing(self, partition: int) -> int:
        """Return the number of records of a partition that no member read."""
        return sum(
            (partition, offset) not in self.readers for offset in range(self.ends[partition])
        )

    def never_written(self) -> int:
        """Return the number of offsets that were read but not written."""
        return sum(
            partition not in self.ends or not 0 <= offset < self.ends[partition]
            for partition, offset in self.readers
        )

    def duplicates(self) -> dict[Place, list[str]]:
        """Return offsets read more than once, with their readers in order."""
        return {place: readers for place, readers in self.readers.items() if len(readers) > 1}

    def by_carrier(self) -> dict[str, CarrierFigures]:
        """Return the figures of the records, each counted once."""
        return {carrier: CarrierFigures(*figures) for carrier, figures in self._carriers.items()}

    def faults(self, killed: str, committed: dict[int, int]) -> list[str]:
        """Return every failed check. The list is empty if all checks pass."""
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
