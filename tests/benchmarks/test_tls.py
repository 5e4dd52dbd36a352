"""The tables of benchmarks/tls.py."""

from __future__ import annotations

import pytest

from benchmarks import _names as names
from benchmarks._goals import goal_table
from benchmarks._topics import LARGE, PLAIN
from benchmarks.tls import ADDED, BROKER, GOALS, Way, rates_table, with_added

RATES_AND_CPU = {
    Way(names.RECORDS, LARGE, "PLAINTEXT"): (1_000_000, 0.8),
    Way(names.RECORDS, LARGE, "SSL"): (500_000, 1.4),
    Way(names.TUNED, LARGE, "SSL"): (400_000, 2.0),
    Way(names.LIMIT, LARGE, "PLAINTEXT"): (2_000_000, 0.4),
    Way(names.LIMIT, LARGE, "SSL"): (800_000, 1.0),
    Way(names.RECORDS, PLAIN, "PLAINTEXT"): (4_000_000, 0.2),
    Way(names.RECORDS, PLAIN, "SSL"): (2_000_000, 0.3),
}
FIGURES = with_added(
    {
        (way, name): [value]
        for way, values in RATES_AND_CPU.items()
        for name, value in zip(("rate", "cpu_us"), values, strict=True)
    }
)


def test_added_cpu_counts_the_bytes_of_values() -> None:
    assert FIGURES[names.RECORDS, LARGE, ADDED] == pytest.approx([0.6 / 1024 * 1000])
    assert (names.TUNED, LARGE, ADDED) not in FIGURES


def test_goals_are_judged_where_both_sides_were_measured() -> None:
    table = goal_table(FIGURES, GOALS)
    assert "confluent-kafka tuned over TLS | 1.25 | 1.4 | 1.2 | above the floor |" in table
    assert "100 B over TLS / plaintext | 0.5 | 0.85 | 0.75 | **below the floor** |" in table
    assert "aiokafka" not in table


def test_a_client_has_a_row_where_it_read_over_both_listeners() -> None:
    table = rates_table(FIGURES, LARGE)
    assert "| kohort records | 1,000 | 500 | 0.50 | 0.800 | 1.400 | 0.59 | 0.62 |  |  |" in table
    assert names.TUNED not in table


def test_the_cpu_of_the_broker_has_a_column() -> None:
    of_broker: dict[object, list[float]] = {(Way(names.RECORDS, LARGE, "SSL"), BROKER): [2, 1, 4]}
    table = rates_table(FIGURES | of_broker, LARGE)
    assert "| 0.50 | 0.800 | 1.400 | 0.59 | 0.62 |  | 2.00 |" in table
