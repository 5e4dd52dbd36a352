"""Seeds of the simulation: none has a violation, and each repeats identically."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.simulate import simulate
from tests.simulation.soak import Failure, replay, soak

SEEDS = 5
"""Seeds of a plain run. `make soak` has the others."""
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
def test_no_seed_violates_anything() -> None:
    report = soak(range(SEEDS), jobs=min(2, os.cpu_count() or 1))
    assert report.failures == [], "\n".join(map(str, report.failures))
    assert report.tally["seeds"] == SEEDS
    assert min(report.tally[name] for name in ("operations", "faults", "rebalances")) > SEEDS


@pytest.mark.long  # starts processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (5, 12, 36))]
)
def test_a_seed_is_the_same_to_the_last_byte_in_another_process(seed: int) -> None:
    first = simulate(seed)
    assert simulate(seed).log.render() == first.log.render()
    for hashes in ("1", "2"):
        command = [sys.executable, *replay(seed).split()[1:]]
        again = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
            check=False,
        )
        assert again.stdout == first.log.render()
        assert again.returncode == bool(first.violations)


def test_unsubscribe_may_cancel_a_commit_in_the_listener() -> None:
    simulation = simulate(20_931, operations=25)
    assert simulation.violations == []


def test_seeds_differ() -> None:
    assert simulate(1, 5).log.render() != simulate(2, 5).log.render()


def test_a_failure_says_how_to_have_it_again() -> None:
    failure = Failure(7, 20, "storm", [f"violation {number}" for number in range(8)])
    assert str(failure).splitlines()[-2:] == [
        "  and 3 more",
        "again: python -m tests.simulation --seed 7 --operations 20",
    ]
