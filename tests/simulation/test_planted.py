"""The simulation finds bugs that are planted in the client, each within the first few seeds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.simulation.planted import BUGS, EPOCH_BUGS
from tests.simulation.protocols import CONSUMER
from tests.simulation.simulate import OPERATIONS, simulate

SEEDS = (*range(2, 23), 25, 40, 42)
"""Seeds to try. The first two find most bugs, others are for changes of members or cluster."""
RACKS = range(55, 60)
"""Seeds with racks, of all the profiles that have no other seeds."""
SLOW_LINES = (62, 92, 84)
"""Seeds with slow lines."""
DISTANCE = (63, 33, 22)
"""Seeds with distant brokers."""
SEEDS_OF: dict[str, Iterable[int]] = {
    "keep an old assignment": RACKS,
    "forget the racks of absent brokers": RACKS,
    "end slow responses": SLOW_LINES,
    "request more than the line delivers": SLOW_LINES,
    "fetch over two connections": DISTANCE,
    "keep partitions of parallel connections": DISTANCE,
    "throttle one connection": DISTANCE,
}

SHORTER = {"heartbeat with an old generation": 8}
"""Number of operations for bugs that let members rejoin all the time, which takes long."""

IN_A_PLAIN_RUN = ("deliver after revoke", "keep an old assignment", "reset on absent offsets")
"""Bugs of three kinds: records of others, members that stand still, and lost positions."""


@pytest.mark.cases(1)  # each simulates until it is found
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in IN_A_PLAIN_RUN)) for name in BUGS],
)
def test_a_planted_bug_is_found(name: str) -> None:
    kind = CONSUMER if name in EPOCH_BUGS else None
    operations = SHORTER.get(name, OPERATIONS)

    def has_violations(seed: int) -> bool:
        return bool(simulate(seed, operations, kind).violations)

    with BUGS[name]():
        found = next(filter(has_violations, SEEDS_OF.get(name, SEEDS)), None)
    assert found is not None
    assert not has_violations(found)
