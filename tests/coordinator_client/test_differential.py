"""The new membership beside the former one, under the same random events.

Both get the same events. They must return the same commands, states and deadlines. A command that
is cancelled by the same event does not count, and the order of cancellations does not.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kohort.coordinator_client._commands import Cancel, Command, ReportFailure
from kohort.coordinator_client._events import Event
from kohort.coordinator_client._membership import ClassicMembership
from tests.coordinator_client import test_membership_fuzz as fuzzing
from tests.coordinator_client.old_machine._membership import ClassicMembership as OldMembership
from tests.coordinator_client.scripts import settings

FIELDS = (
    "topics",
    "member_id",
    "generation",
    "protocol",
    "owned",
    "losses",
    "is_fenced",
    "is_leader",
    "is_finishing_rebalance",
    "needs_poll",
    "confirmed_until",
    "join_reason",
)
TOKENLESS = ("DropCoordinator", "StopDelivery", "WatchTopics", "ReportFailure")


class FixedRandom(random.Random):
    """A source of equal numbers, since the machines may draw a different count of them."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Both:
    """Both machines in place of one."""

    def __init__(self, new: Any, old: Any) -> None:
        self.new, self.old = new, old
        self.tokens: dict[int, int] = {}
        """Tokens of the former machine by tokens of the new one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.new, name)

    def handle(self, event: Event, now: float) -> list[Command]:
        token = getattr(event, "token", None)
        old_event = event
        if token is not None:
            old_event = event._replace(token=self.tokens[token])  # type: ignore[call-arg]
        new: list[Command] = self.new.handle(event, now)
        old: list[Command] = self.old.handle(old_event, now)
        self._match(_kept(new), _kept(old), event)
        self._compare(event)
        return new

    def _match(self, new: list[Command], old: list[Command], event: Event) -> None:
        assert _names(new) == _names(old), event
        starts = [(a, b) for a in _starting(new) for b in _starting(old) if type(a) is type(b)]
        if len(starts) != len(_starting(new)):  # twice the same kind, so pair them by order
            starts = list(zip(_starting(new), _starting(old), strict=True))
        for a, b in starts:
            self.tokens[a.token] = b.token  # type: ignore[union-attr]
            assert a == b._replace(token=a.token), event  # type: ignore[union-attr,call-arg]
        cancelled = {self.tokens[c.token] for c in new if isinstance(c, Cancel)}
        assert cancelled == {c.token for c in old if isinstance(c, Cancel)}, event
        assert _plain(new) == _plain(old), event
        order = [
            [repr(type(c)) for c in commands if not isinstance(c, Cancel)]
            for commands in (new, old)
        ]
        ORDERS[order[0] == order[1]] += 1

    def _compare(self, event: Event) -> None:
        new, old = self.new, self.old
        assert new.state is old.state, event
        assert new.next_deadline() == old.next_deadline(), event
        assert (new.leave is None) == (old.leave is None), event
        for name in FIELDS:
            assert getattr(new, name) == getattr(old, name), (name, event)
        assert {r.name: self.tokens[t] for r, t in new.outstanding.items()} == {
            r.name: t for r, t in old.outstanding.items()
        }, event
        assert new.failures.last == old.last_failure, event
        assert new.failures.denied_operation == old.denied_operation, event
        assert new.failures.join_obstruction == old.join_obstruction, event
        assert list(map(tuple, new.history)) == list(map(tuple, old.history)), event
        assert new.rebalances.count == old.rebalances
        assert new.rebalances.seconds == old.rebalance_seconds
        assert new.rebalances.longest == old.rebalance_longest
        for name in ("count", "last", "session_end"):
            assert getattr(new.heartbeats, name) == getattr(old.heartbeats, name)


ORDERS: Counter[bool] = Counter()


def _order(commands: list[Command]) -> list[type]:
    return [type(command) for command in commands if not isinstance(command, Cancel)]


def _is_plain(command: Command) -> bool:
    return type(command).__name__ in TOKENLESS


def _plain(commands: list[Command]) -> list[Any]:
    found = [c for c in commands if _is_plain(c)]
    found.sort(key=lambda c: type(c).__name__)
    return [repr(c) if isinstance(c, ReportFailure) else c for c in found]


def _starting(commands: list[Command]) -> list[Command]:
    return [c for c in commands if not _is_plain(c) and not isinstance(c, Cancel)]


def _names(commands: list[Command]) -> list[str]:
    return sorted(type(command).__name__ for command in commands)


def _kept(commands: list[Command]) -> list[Command]:
    """Return the commands without those that the same event cancelled."""
    cancelled = {command.token for command in commands if isinstance(command, Cancel)}
    started = {getattr(c, "token", None) for c in commands if not isinstance(c, Cancel)}
    both = cancelled & started
    return [command for command in commands if getattr(command, "token", None) not in both]


def run_sequence(seed: int) -> None:
    """Feed one random sequence of events to both machines."""
    fuzz = fuzzing.Fuzz(seed)
    chosen = settings(cooperative=fuzz.cooperative, static=fuzz.machine.settings.static)
    new = ClassicMembership(chosen, FixedRandom())
    fuzz.machine = Both(new, OldMembership(chosen, FixedRandom()))  # type: ignore[assignment,arg-type]
    try:
        for _ in range(300):
            fuzz.step()
        fuzzing._recovers(fuzz)
    except BaseException:
        print(f"seed {seed}")
        for line in fuzz.log[-25:]:
            print(line)
        raise


@pytest.mark.parametrize("block", range(10))
def test_new_membership_does_what_the_former_one_does(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        run_sequence(seed)
