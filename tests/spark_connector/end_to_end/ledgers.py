"""What a query has written, batch by batch, and what all readers of a topic add up to."""

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
    """A record in a batch; ``worker`` is the folder in which its worker ran, if that was asked."""

    partition: int
    offset: int
    value: str
    worker: str

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class Ledger:
    """A folder with a file for each time that a batch was written: none is ever changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hold = folder / "hold"
        """While this file is there a batch that was written does not end."""
        self.held = folder / "held"
        self._seen: dict[str, list[Row]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, batch: int, rows: Iterable[Row]) -> None:
        """Keep what a batch holds: whole, or not at all if the writer is killed meanwhile."""
        before = len(list(self.folder.glob(f"{batch:06}.*.json")))
        part = self.folder / "part"
        part.write_text(json.dumps(list(rows)))
        part.rename(self.folder / f"{batch:06}.{before:02}.json")

    def attempts(self) -> dict[int, list[list[Row]]]:
        """Batch -> the rows of each time that it was written."""
        found: dict[int, list[list[Row]]] = {}
        for name in sorted(name for name in os.listdir(self.folder) if name.endswith(".json")):
            if name not in self._seen:
                read = json.loads((self.folder / name).read_text())
                self._seen[name] = [Row(*row) for row in read]
            found.setdefault(int(name.partition(".")[0]), []).append(self._seen[name])
        return found

    def rows(self) -> list[Row]:
        """The query's output: each batch as it was written last."""
        return [row for attempts in self.attempts().values() for row in attempts[-1]]

    def reads(self) -> Iterator[tuple[int, int, bytes]]:
        """The same as partition, offset and value."""
        return ((row.partition, row.offset, row.value.encode()) for row in self.rows())

    def assert_replays_are_exact(self) -> None:
        """Each time that a batch was written it held the same."""
        for batch, attempts in self.attempts().items():
            first = sorted(row[:3] for row in attempts[0])
            for other in attempts[1:]:
                assert sorted(row[:3] for row in other) == first, f"batch {batch} has changed"


@dataclass(frozen=True)
class Account:
    """What several readers of a topic have read together."""

    missing: list[Place]
    strange: list[Place]
    """Read, but never written or with another value."""
    twice: dict[str, list[Place]]
    """Reader -> what it has read more than once."""
    shared: dict[Place, list[str]]
    """What more than one reader has read, and which."""

    def assert_whole(self) -> None:
        """All was read, and nobody read anything twice."""
        assert not self.missing, f"{len(self.missing)} are missing, such as {self.missing[:5]}"
        assert not self.strange, f"{len(self.strange)} are strange, such as {self.strange[:5]}"
        twice = {name: places[:5] for name, places in self.twice.items() if places}
        assert not twice, f"read twice: {twice}"


def account(
    written: Mapping[Place, bytes], readers: Mapping[str, Iterable[tuple[int, int, bytes]]]
) -> Account:
    """Compare what was written with what each reader read: partition, offset, value."""
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
