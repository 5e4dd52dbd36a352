"""The tables of benchmarks/tls.py."""

from __future__ import annotations

import pytest

from benchmarks import _names as names
from benchmarks._reading import Reading
from benchmarks._topics import LARGE, PLAIN, Filled
from benchmarks.tls import Way, added_cpu, goals_table, rates_table, text_of


def reading(rate: float, cpu_us: float) -> Reading:
    """Return a reading of 1,000 records."""
    return Reading(1000, None, 1000 / rate, cpu_us / 1000, 50.0)


READINGS = {
    Way(names.RECORDS, LARGE, "PLAINTEXT"): [reading(1_000_000, 0.8)],
    Way(names.RECORDS, LARGE, "SSL"): [reading(500_000, 1.4)],
    Way(names.TUNED, LARGE, "SSL"): [reading(400_000, 2.0)],
    Way(names.LIMIT, LARGE, "PLAINTEXT"): [reading(2_000_000, 0.4)],
    Way(names.LIMIT, LARGE, "SSL"): [reading(800_000, 1.0)],
    Way(names.RECORDS, PLAIN, "PLAINTEXT"): [reading(4_000_000, 0.2)],
    Way(names.RECORDS, PLAIN, "SSL"): [reading(2_000_000, 0.3)],
}


def test_added_cpu_counts_the_bytes_of_values() -> None:
    assert added_cpu(READINGS, names.RECORDS, LARGE) == pytest.approx(0.6 / 1024 * 1000)
    assert added_cpu(READINGS, names.TUNED, LARGE) is None


def test_goals_are_judged_where_both_sides_were_measured() -> None:
    table = goals_table(READINGS)
    assert "confluent-kafka tuned over TLS | 1.25 | 1.4 | 1.2 | above the floor |" in table
    assert "100 B over TLS / plaintext | 0.5 | 0.85 | 0.75 | **below the floor** |" in table
    assert "aiokafka" not in table


def test_a_client_has_a_row_where_it_read_over_both_listeners() -> None:
    table = rates_table(READINGS, LARGE)
    assert "| kohort records | 1,000 | 500 | 0.50 | 0.800 | 1.400 | 0.59 | 0.62 |  |  |" in table
    assert names.TUNED not in table


def test_the_cpu_of_the_broker_counts_for_each_gigabyte() -> None:
    seconds = {Way(names.RECORDS, LARGE, "SSL"): [0.002, 0.001, 0.004]}
    table = rates_table(READINGS, LARGE, seconds)
    assert (
        "| kohort records | 1,000 | 500 | 0.50 | 0.800 | 1.400 | 0.59 | 0.62 |  | 1.95 |" in table
    )


def test_the_page_has_a_table_for_each_topic() -> None:
    filled = {topic: Filled(topic, 1000, 0) for topic in (LARGE, PLAIN)}
    assert text_of(READINGS, filled, 5).count("| client |") == 2
