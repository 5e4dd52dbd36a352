"""The batches that a query has written, and a comparison of all readers of a topic."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

Place = tuple[int, int]
"""Partition and offset."""


class Row(NamedTuple):
    """A record in a batch. ``worker`` is the folder in which its worker ran, or empty."""

    partition: int
    offset: int
    value: str
    worker: str

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class Ledger:
    """A folder with one file for each write of a batch. No file ever changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hold = folder / "hold"
        """File that delays the end of a written batch while it exists."""
        self.held = folder / "held"
        self._seen: dict[str, list[Row]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, batch: int, rows: Iterable[Row]) -> None:
        """Store the rows of a batch. A kill of the writer leaves all or none of them."""
        before = len(list(self.folder.glob(f"{batch:06}.*.json")))
        part = self.folder / "part"
        part.write_text(json.dumps(list(rows)))
        part.rename(self.folder / f"{batch:06}.{before:02}.json")

    def attempts(self) -> dict[int, list[list[Row]]]:
        """Return the rows of each write of each batch."""
        found: dict[int, list[list[Row]]] = {}
        for name in sorted(name for name in os.listdir(self.folder) if name.endswith(".json")):
            if name not in self._seen:
                read = json.loads((self.folder / name).read_text())
                self._seen[name] = [Row(*row) for row in read]
            found.setdefault(int(name.partition(".")[0]), []).append(self._seen[name])
        return found

    def rows(self) -> list[Row]:
        """Return the query's output: the last write of each batch."""
        return [row for attempts in self.attempts().values() for row in attempts[-1]]

    def reads(self) -> Iterator[tuple[int, int, bytes]]:
        """Return the output as partition, offset and value."""
        return ((row.partition, row.offset, row.value.encode()) for row in self.rows())

    def assert_replays_are_exact(self) -> None:
        """Check that all writes of a batch have the same rows."""
        for batch, attempts in self.attempts().items():
            first = sorted(row[:3] for row in attempts[0])
            for other in attempts[1:]:
                assert sorted(row[:3] for row in other) == first, f"batch {batch} has changed"


@dataclass(frozen=True)
class Account:
    """The records that several readers of a topic have read together."""

    missing: list[Place]
    strange: list[Place]
    """Records that were never written or have another value."""
    twice: dict[str, list[Place]]
    """Records that each reader has read more than once."""
    shared: dict[Place, list[str]]
    """Records that more than one reader has read, and these readers."""

    def assert_whole(self) -> None:
        """Check that all records were read, and none twice by the same reader."""
        assert not self.missing, f"{len(self.missing)} are missing, such as {self.missing[:5]}"
        assert not self.strange, f"{len(self.strange)} are strange, such as {self.strange[:5]}"
        twice = {name: places[:5] for name, places in self.twice.items() if places}
        assert not twice, f"read twice: {twice}"


def account(
    written: Mapping[Place, bytes], readers: Mapping[str, Iterable[tuple[int, int, bytes]]]
) -> Account:
    """Compare the written records with those of each reader: partition, offset, value."""
    who: dict[Place, list[str]] = {}
    twice: dict[str, list[Place]] = {}
    strange = []
    for name, reads in readers.items():
        times: Counter[Place] = Counter()
        for partition, offset, value in reads:
            times[partition, offset] += 1
            if written.get((partition, offset)) != value:
                strange.append((partition, offset))
        twice[name] = sorted(place for place, count in times.items() if count > 1)
        for place in times:
            who.setdefault(place, []).append(name)
    return Account(
        missing=sorted(written.keys() - who.keys()),
        strange=sorted(strange),
        twice=twice,
        shared={place: names for place, names in who.items() if len(names) > 1},
    )
