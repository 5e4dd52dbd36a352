"""Invariants of the fetches of distant members, named as in docs/simulation.md.

Each takes a log and returns a sentence for each violation, as those of
:mod:`invariants <tests.simulation.invariants>` do.
"""

from __future__ import annotations

from collections import defaultdict

from kohort.types import TopicPartition
from tests.simulation.events import (
    Crashed,
    EventLog,
    FetchEnded,
    FetchSent,
    Stopped,
    Throttled,
)


def partitions_are_in_flight_once(log: EventLog) -> list[str]:
    """Check I27: no partition is in flight over two connections to its broker."""
    found: list[str] = []
    flying: defaultdict[tuple[str, int], dict[str, frozenset[tuple[TopicPartition, int]]]]
    flying = defaultdict(dict)
    for event in log:
        match event:
            case FetchSent(who=who, node=node, connection=connection, requests=requests):
                for other, theirs in flying[who, node].items():
                    if other == connection or requests & theirs:
                        found.append(f"{event}: {other} fetches the same")
                flying[who, node][connection] = requests
            case FetchEnded(who=who, node=node, connection=connection):
                flying[who, node].pop(connection, None)
            case Stopped(who=who) | Crashed(who=who):
                for key in [key for key in flying if key[0] == who]:
                    del flying[key]
    return found


def only_assigned_partitions_are_fetched(log: EventLog) -> list[str]:
    """Check I28: no fetch contains a partition that its member is not assigned."""
    return [str(event) for event in log.of(FetchSent) if event.unassigned]


def throttles_stop_all_fetches(log: EventLog) -> list[str]:
    """Check I29: after a throttle time, no connection to that broker has a fetch before its end."""
    found: list[str] = []
    until: defaultdict[tuple[str, int], float] = defaultdict(float)
    for event in log:
        match event:
            case Throttled(who=who, node=node, at=at, seconds=seconds):
                until[who, node] = max(until[who, node], at + seconds)
            case FetchSent(who=who, node=node, at=at):
                if at < until[who, node] - 1e-6:
                    found.append(f"{event}: throttled until {until[who, node]:.3f}")
    return found
