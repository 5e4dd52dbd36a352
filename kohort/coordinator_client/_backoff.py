"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass

SHORTEST_PAUSE = 0.01
"""Seconds: a pause of nothing would spin."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling pauses with a fifth of jitter, in seconds."""

    first: float = 0.1
    longest: float = 1.0

    def pause(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait before a retry; ``attempt`` counts from 0."""
        pause = min(self.longest, self.first * 2.0 ** min(attempt, 30))
        return max(SHORTEST_PAUSE, pause * rng.uniform(0.8, 1.0))
