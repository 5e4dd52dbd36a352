"""The checkpoint of a query as Spark writes it: started and finished batches."""

from __future__ import annotations

import json
from pathlib import Path

from kohort.spark_connector._offsets import StreamOffset, nested


class Checkpoint:
    """The folder of a query that does not run now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begun(self) -> list[int]:
        """Return the batches of the offset log."""
        return _numbers(self.folder / "offsets")

    def finished(self) -> list[int]:
        """Return the batches of the commit log."""
        return _numbers(self.folder / "commits")

    def ends(self, batch: int) -> dict[str, dict[str, int]]:
        """Return the end offsets of a started batch, by topic and partition."""
        return nested(self._offset(batch).end)

    def ranges(self, batch: int) -> set[tuple[int, int]]:
        """Return partition and offset of all records in a started batch of one topic."""
        return {
            (each.partition, at)
            for each in self._offset(batch).ranges()
            for at in range(each.start, each.end)
        }

    def unfinish(self) -> int:
        """Remove the latest batch from the commit log, as if Spark had been killed before that."""
        latest = self.finished()[-1]
        (self.folder / "commits" / str(latest)).unlink()
        (self.folder / "commits" / f".{latest}.crc").unlink(missing_ok=True)
        return latest

    def _offset(self, batch: int) -> StreamOffset:
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        return StreamOffset.from_json(json.loads(lines[-1]))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
