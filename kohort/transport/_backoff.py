"""How long to wait before trying again, as a value."""

from __future__ import annotations

import random
from typing import NamedTuple

JITTER = 0.2
"""Each pause is drawn from +-20 % around its length, so that clients do not come back together."""
_MAX_DOUBLINGS = 32


class Backoff(NamedTuple):
    """Pauses in seconds that double from ``initial`` to ``maximum`` with the failures in a row."""

    initial: float
    maximum: float

    def delay(self, failures: int, rng: random.Random) -> float:
        """The pause after so many failures in a row (1 or more), never above ``maximum``."""
        doublings = min(max(failures, 1) - 1, _MAX_DOUBLINGS)
        length = min(self.initial * 2.0**doublings, self.maximum)
        return min(length * rng.uniform(1 - JITTER, 1 + JITTER), self.maximum)

    @classmethod
    def from_ms(cls, initial: int, maximum: int) -> Backoff:
        """From two options in milliseconds; never none at all, which would be a spin."""
        return cls(max(initial, 10) / 1000, max(initial, maximum, 10) / 1000)
