"""The pauses between attempts."""

from __future__ import annotations

import random

from kohort.transport import Backoff

BACKOFF = Backoff(0.05, 1.0)


class Middle(random.Random):
    """A generator that returns the middle of every range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_double_from_the_first_to_the_longest() -> None:
    pauses = [BACKOFF.delay(failures, Middle()) for failures in range(1, 8)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_spreads_by_a_fifth_and_never_passes_the_longest() -> None:
    rng = random.Random(1)
    first = [BACKOFF.delay(1, rng) for _ in range(1000)]
    assert 0.04 <= min(first) < 0.042
    assert 0.058 < max(first) <= 0.06
    assert max(BACKOFF.delay(9, rng) for _ in range(1000)) == 1.0


def test_the_same_seed_gives_the_same_pauses() -> None:
    def run(seed: int) -> list[float]:
        rng = random.Random(seed)
        return [BACKOFF.delay(failures, rng) for failures in range(1, 6)]

    assert run(3) == run(3) != run(4)


def test_any_number_of_failures_is_bounded() -> None:
    assert BACKOFF.delay(10**9, Middle()) == 1.0
    assert BACKOFF.delay(0, Middle()) == 0.05


def test_options_of_zero_do_not_make_it_spin() -> None:
    assert Backoff.from_ms(0, 0).delay(5, Middle()) == 0.01
