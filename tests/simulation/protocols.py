"""Group protocols of the members of a seed, which may be several in one group."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.simulation.member import SESSION, Habits

CLASSIC, CONSUMER, AUTO = "classic", "consumer", "auto"
MIXED = "mixed"
KINDS = {
    CLASSIC: (CLASSIC,),
    CONSUMER: (CONSUMER,),
    MIXED: (CLASSIC, CONSUMER, AUTO),
    AUTO: (AUTO, AUTO, CLASSIC),
}
"""Kind of a seed -> the protocols of its members."""
SHARES = {CLASSIC: 0.5, CONSUMER: 0.2, MIXED: 0.2, AUTO: 0.1}
"""Share of the seeds that are of a kind."""

SHARE_OF_STATIC = 0.2
"""Share of the seeds with consumer members whose members are all static."""


@dataclass(frozen=True, slots=True)
class Protocols:
    """The protocols of one seed, and what its group is configured to."""

    kind: str
    rng: random.Random
    """Generator for the protocol of each life."""
    is_static: bool = False
    """True if all members are static."""
    pattern: str = ""
    """"client" or "brokers" if members subscribe by patterns, which these evaluate."""
    assignor: str | None = None
    heartbeat_ms: int = 1000
    assignment_interval_ms: int = 0

    @property
    def has_consumers(self) -> bool:
        """True if members may use the consumer protocol."""
        return self.kind != CLASSIC

    @property
    def is_mixed(self) -> bool:
        """True if members of one group use different protocols."""
        return len(set(KINDS[self.kind])) > 1

    @property
    def _choices(self) -> Sequence[str]:
        """Protocols of lives. A static member by ``auto`` has the default session of the classic
        protocol, so others would wait too long for one that has ended.
        """
        names = KINDS[self.kind]
        return [name for name in names if name != AUTO] if self.is_static else names

    def settings(self) -> Mapping[str, int]:
        """Return the settings of the cluster's groups."""
        if not self.has_consumers:
            return {}
        return {
            "consumer_session_timeout_ms": int(SESSION * 1000),
            "consumer_heartbeat_interval_ms": self.heartbeat_ms,
            "consumer_assignment_interval_ms": self.assignment_interval_ms,
            # A pattern resolved without a right misses topics until the next refresh. Kafka's
            # default of 10 minutes would outlast a seed.
            "consumer_regex_refresh_interval_ms": 10_000,
        }

    def habits_of(self, habits: Habits, slot: str) -> Habits:
        """Return the habits of a new life, which uses one of the protocols."""
        if not self.has_consumers or habits.by_hand is not None:
            return habits
        if self.is_static:
            habits = replace(habits, instance_id=slot)
        return self._with(habits, self.rng.choice(self._choices))

    def changed(self, habits: Habits) -> Habits:
        """Return the habits of a life that uses another protocol, if there is one."""
        others = sorted(set(self._choices) - {habits.protocol})
        return self._with(habits, self.rng.choice(others)) if others else habits

    def _with(self, habits: Habits, protocol: str) -> Habits:
        return replace(habits, protocol=protocol, assignor=self.assignor, pattern=self.pattern)


def protocols_of(seed: int, kind: str | None = None) -> Protocols:
    """Return the protocols of a seed. ``kind`` replaces the one that the seed draws."""
    rng = random.Random(f"protocol {seed}")
    (drawn,) = rng.choices(list(SHARES), list(SHARES.values()))
    kind = kind or drawn
    return Protocols(
        kind,
        random.Random(rng.random()),
        is_static=rng.random() < SHARE_OF_STATIC and kind != AUTO,
        assignor=rng.choice((None, None, "uniform", "range")),
        heartbeat_ms=rng.choice((500, 1000, 3000)),
        assignment_interval_ms=rng.choice((0, 0, 1000, 3000)),
        pattern=rng.choice(("", "", "client", "brokers" if kind == CONSUMER else "client")),
    )
