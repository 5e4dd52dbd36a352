"""The form of a rebalance's steps, and the exception that restarts them."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, NoReturn, TypeVar

from kohort.coordinator_client._events import Event

T = TypeVar("T")
RebalanceSteps = Generator[float | None, Event | None, T]
"""Steps of a rebalance. Each yields None to wait for an event, or the time of a retry."""


class RebalanceStart(NamedTuple):
    """The start of a rebalance, or its restart."""

    reason: str
    needs_poll: bool = True
    """False for a restart. It waits for poll() only if a callback must precede JoinGroup."""
    refreshes_topics: bool = True
    """False if new metadata led to this rebalance. A refresh happens only before the wait for
    poll(), and only for a pattern."""
    pauses: bool = False
    """True for a restart that always pauses before JoinGroup. Others pause from the second on."""


class Restarted(Exception):
    """An interruption of the rebalance, which then starts again."""

    def __init__(self, start: RebalanceStart) -> None:
        super().__init__(start.reason)
        self.start = start


def restart(reason: str, *, pauses: bool = False) -> NoReturn:
    """Raise Restarted, which waits for poll() only if a callback must precede JoinGroup."""
    raise Restarted(RebalanceStart(reason, needs_poll=False, pauses=pauses))
