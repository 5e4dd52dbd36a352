"""Mutated requests: 5,000 in a plain run, one million in ``make fuzz``."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from kohort.broker import apis
from tests.support import fuzz
from tests.support.mutation import mutate

REQUESTS = 5_000


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
)
@pytest.mark.timeout(180)
def test_no_request_crashes_hangs_or_bloats_the_cluster(seed: int) -> None:
    tally = fuzz.run(REQUESTS, seed=seed)
    assert tally.requests == REQUESTS
    assert tally.outcomes["answered"] > REQUESTS / 5, "many get as far as their handlers"
    assert tally.outcomes["closed"] > REQUESTS / 5


def test_a_failure_prints_the_command_that_has_it_again() -> None:
    async def broken(ctx: apis.Context, request: object) -> None:
        raise ZeroDivisionError

    broken_apis = {key: served._replace(handler=broken) for key, served in apis.SERVED.items()}
    with mock.patch.dict(apis.SERVED, broken_apis), pytest.raises(fuzz.FuzzFailure) as failed:
        fuzz.run(2_000, seed=5, first=3)
    assert "ZeroDivisionError" in str(failed.value)
    assert "again: python -m tests.support.fuzz --seed 5 --first 3 --requests 500" in str(
        failed.value
    )


def test_the_time_is_bounded() -> None:
    assert fuzz.run(1_000_000, seconds=0.0).requests == 0


@pytest.mark.long  # starts processes
def test_lives_are_dealt_out_to_processes() -> None:
    shared = fuzz.run_shared(1_100, 2, seed=3, first=1, seconds=60)
    assert (shared.requests, shared.outcomes) == (1_100, fuzz.run(1_100, seed=3, first=1).outcomes)


def test_a_seed_decides_all_mutations() -> None:
    frame = bytes(range(40))
    once, again = ([mutate(frame, random.Random(seed)) for seed in range(50)] for _ in range(2))
    assert once == again
    assert all(mutate(frame, random.Random(seed), 8)[:8] == frame[:8] for seed in range(50))
