"""The simulation finds bugs that are planted in the client, each within the first few seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS, EPOCH_BUGS
from tests.simulation.protocols import CONSUMER
from tests.simulation.simulate import simulate

SEEDS = (*range(2, 23), 25, 40, 42)
"""Seeds to try. The first two find most bugs, others are for changes of members or cluster."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    kind = CONSUMER if name in EPOCH_BUGS else None
    with BUGS[name]():
        found = next((seed for seed in SEEDS if simulate(seed, kind=kind).violations), None)
    assert found is not None
    assert simulate(found, kind=kind).violations == []
