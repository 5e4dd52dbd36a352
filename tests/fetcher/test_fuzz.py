"""Mutated Fetch responses: 5,000, in the long form 50,000, and 1,000,000 in ``make fuzz``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import fetch_fuzz
from tests.support.batch_mutation import mended, seeds
from tests.support.decoders import use_decoder
from tests.support.fetch_cases import VERSIONS, Case, case_of
from tests.support.fetch_fuzz import FuzzFailure, Tally, read
from tests.support.heap import Heap

REGRESSIONS = Path(__file__).parents[1] / "data" / "fetch_regressions.json"


@pytest.fixture(autouse=True)
def _both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip without the compiled modules, and use the right decoder after the test."""
    use_decoder("compiled", monkeypatch)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("responses", [2_000, pytest.param(50_000, marks=pytest.mark.long)])
def test_no_response_crashes_hangs_or_bloats_a_consumer(responses: int) -> None:
    tally = fetch_fuzz.run(responses, seed=20, jobs=2)
    assert tally.cases == responses
    outcomes = tally.outcomes
    assert outcomes["CorruptBatchError"] > responses / 4, "most get past the CRC"
    assert outcomes["read"] > responses / 20
    assert outcomes["no response"] > responses / 20
    assert outcomes["DecompressionBudgetError"] > responses / 1000


@pytest.mark.parametrize("line", json.loads(REGRESSIONS.read_text()), ids=lambda line: line["why"])
def test_what_once_went_wrong_is_right(line: dict[str, object]) -> None:
    case = Case(int(str(line["version"])), bytes.fromhex(str(line["frame"])), 0)
    case = case._replace(offset=int(str(line["offset"])))
    for number in (0, 1):
        read(case, arrow=number == 0)  # leaves imports out of the count
        fetch_fuzz.check(case, number, Heap(), tally := Tally())
        assert tally.cases == 1


def test_failure_prints_the_case_and_the_command_to_repeat_it(tmp_path: Path) -> None:
    with pytest.raises(FuzzFailure) as failed:
        fetch_fuzz.run(10, seed=3, start=7, longest_s=0.0)
    assert "again: python -m tests.support.fetch_fuzz --seed 3 --start 7 --cases 1" in str(
        failed.value
    )
    assert case_of(3, 7).frame.hex() in str(failed.value)


def test_the_time_is_bounded() -> None:
    assert fetch_fuzz.run(1_000_000, seconds=0.0).cases == 0


def test_a_number_decides_all_of_a_case() -> None:
    once, again = ([case_of(1, number) for number in range(300)] for _ in range(2))
    assert once == again
    assert len({case.frame for case in once}) == 300
    assert {case.version for case in once} == {*range(VERSIONS.first, VERSIONS.last + 1)}


def test_what_is_mutated_is_sound_before() -> None:
    assert {(seed.magic, seed.codec) for seed in seeds() if seed.magic == 2} == {
        (2, codec) for codec in range(5)
    }
    assert {seed.magic for seed in seeds()} == {0, 1, 2}
    for seed in seeds():
        if seed.magic == 2:
            assert mended(seed.data) == seed.data
