"""Profile of the hot loops: the data that it reads, and the report on samples of perf."""

from __future__ import annotations

import pytest

from benchmarks.decode_profile import BATCHES, OUTPUTS, PER_BATCH, batches, read, summary, table


@pytest.fixture(scope="module")
def data() -> bytes:
    return batches()


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_record_is_read_in_each_form(data: bytes, output: str) -> None:
    assert read(data, output) == BATCHES * PER_BATCH


def test_shares_are_told_with_the_lines_of_the_source() -> None:
    shares = {("_take", "_columns.py:1"): 0.5, ("_take", ""): 0.2, ("memcpy", ""): 0.3}
    told = table("arrow", 100.0, shares, 2)
    assert "| 50.0% | 50.0 | _take | _columns.py:1 | `# cython: " in told
    assert "| 20.0% | 20.0 | all else |" in told
    assert summary(100.0, shares) == "In ns: _take() 70.0, Python and libraries 30.0."
