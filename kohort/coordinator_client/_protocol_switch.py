"""Tokens, counts and history that remain when a membership takes over from another."""

from __future__ import annotations

from typing import Any

from kohort.coordinator_client._commands import Cancel, ChooseProtocol, Command
from kohort.coordinator_client._events import Event
from kohort.coordinator_client._group_callbacks import GroupStatistics
from kohort.coordinator_client._membership_interface import Membership
from kohort.coordinator_client._rebalance_history import RebalanceRecord


class TokenMap:
    """The tokens of commands, which stay unique although each membership counts from 1.

    Tokens that the driver has are called outer ones.
    """

    def __init__(self) -> None:
        self._base = 0
        self._highest = 0
        self._outstanding: set[int] = set()

    @property
    def outstanding(self) -> list[int]:
        """The outer tokens of commands in progress, in their order."""
        return sorted(self._outstanding)

    def restart(self) -> None:
        """Begin with a membership whose tokens start from 1 again."""
        self._base = self._highest
        self._outstanding.clear()

    def is_current(self, token: int) -> bool:
        """True if the outer token is of a command of the current membership."""
        return token > self._base

    def inward(self, event: Event) -> Event | None:
        """Return the event with the membership's token; None if it is of a former membership."""
        token: int | None = getattr(event, "token", None)
        if token is None:
            return event
        self._outstanding.discard(token)
        if not self.is_current(token):
            return None
        inner: Event = _with_token(event, token - self._base)
        return inner

    def outward(self, command: Command) -> Command:
        """Return the command with the outer token."""
        inner: int | None = getattr(command, "token", None)
        if inner is None:
            return command
        token = inner + self._base
        self._highest = max(self._highest, token)
        if isinstance(command, Cancel):
            self._outstanding.discard(token)
        else:
            self._outstanding.add(token)
        if isinstance(command, ChooseProtocol):
            command = ChooseProtocol(token, _with_token(command.heartbeat, token))
        outer: Command = _with_token(command, token)
        return outer


def _with_token(value: Any, token: int) -> Any:
    return value._replace(token=token)


class FormerMemberships:
    """The counts and the history of memberships that another one has replaced."""

    def __init__(self) -> None:
        self.losses = 0
        self.history: tuple[RebalanceRecord, ...] = ()
        self._rebalances = self._heartbeats = 0
        self._seconds = self._longest = 0.0

    def add(self, membership: Membership) -> None:
        """Add a membership that ends now."""
        counts = membership.statistics()
        self.losses += membership.losses
        self.history = (*self.history, *membership.history)
        self._rebalances += counts.rebalances
        self._heartbeats += counts.heartbeats
        self._seconds += counts.rebalance_seconds
        self._longest = max(self._longest, counts.rebalance_longest)

    def with_counts(self, current: GroupStatistics) -> GroupStatistics:
        """Return the statistics with the counts of the former memberships added."""
        return current._replace(
            rebalances=self._rebalances + current.rebalances,
            rebalance_seconds=self._seconds + current.rebalance_seconds,
            rebalance_longest=max(self._longest, current.rebalance_longest),
            heartbeats=self._heartbeats + current.heartbeats,
        )
