"""Pauses between retries, as a value."""

from __future__ import annotations

import random

from kohort.types import NamedTuple

JITTER = 0.2
"""Random part of a pause. A pause varies by 20 %, so that clients do not retry together."""
_MAX_DOUBLINGS = 32

SYSTEM_RNG = random.SystemRandom()
"""Default source of jitter. It has no state, which all children of a fork would continue."""


class Backoff(NamedTuple):
    """Pauses in seconds that double with each failure, from ``initial`` to ``maximum``."""

    initial: float
    maximum: float

    def delay(self, failures: int, rng: random.Random) -> float:
        """Return the pause after ``failures`` failures in a row, at most ``maximum``."""
        doublings = min(max(failures, 1) - 1, _MAX_DOUBLINGS)
        length = min(self.initial * 2.0**doublings, self.maximum)
        return min(length * rng.uniform(1 - JITTER, 1 + JITTER), self.maximum)

    @classmethod
    def from_ms(cls, initial: int, maximum: int) -> Backoff:
        """Return the pauses of two options in milliseconds. 10 ms at least prevent a busy loop."""
        return cls(max(initial, 10) / 1000, max(initial, maximum, 10) / 1000)
