"""Records of a file for a topic: a file of ``kohort copy``, or lines of ``kohort tail --json``."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from kohort.testing._producing import ProducerRecord

Rows: TypeAlias = list[dict[str, Any]]
_AT_ONCE = 10_000


def parts_of(path: str | os.PathLike[str]) -> Iterator[Rows]:
    """Yield the rows of a file, some thousand at once. Raise ValueError for another kind."""
    file = Path(path)
    readers = {".parquet": _parquet, ".arrow": _arrow, ".jsonl": _lines}
    if file.suffix not in readers:
        raise ValueError(f"{file} has no name in .parquet, .arrow or .jsonl")
    return readers[file.suffix](file)


def record_of(row: dict[str, Any]) -> ProducerRecord:
    """Return the record of a row. Raise ValueError if it lacks a column."""
    try:
        headers = [
            (each["key"], each["value"]) if isinstance(each, dict) else (each[0], _bytes(each[1]))
            for each in row["headers"]
        ]
        return ProducerRecord(
            _bytes(row["value"]),
            _bytes(row["key"]),
            headers,
            _milliseconds(row["timestamp"]),
            int(row["partition"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the file is not of kohort copy or kohort tail: {error!r}") from error


def _bytes(value: Any) -> bytes | None:
    """Return bytes, also of text and of the object that stands for other bytes in JSON."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return value.encode() if isinstance(value, str) else value


def _milliseconds(value: Any) -> int | None:
    """Return a timestamp, or None if it is unknown."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return None if value is None or value < 0 else int(value)


def _parquet(file: Path) -> Iterator[Rows]:
    from pyarrow import parquet

    with parquet.ParquetFile(file) as found:
        for batch in found.iter_batches(_AT_ONCE):
            yield batch.to_pylist()


def _arrow(file: Path) -> Iterator[Rows]:
    import pyarrow as pa

    with pa.memory_map(str(file)) as data:
        found = pa.ipc.open_file(data)
        for number in range(found.num_record_batches):
            yield found.get_batch(number).to_pylist()


def _lines(file: Path) -> Iterator[Rows]:
    with file.open(encoding="utf-8") as lines:
        while some := [json.loads(line) for line in islice(lines, _AT_ONCE)]:
            yield some
