"""Registered brokers: an entry lives as long as its broker's session, and one is the controller."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass


@dataclass(slots=True)
class BrokerSession:
    """Session of a registered broker.

    ``expires_at`` is infinity while the broker runs.
    """

    broker_epoch: int
    expires_at: float = math.inf


class BrokerRegistry:
    """Sessions by node id. The first registered broker is the controller until its session ends."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.controller_id: int = -1
        self.controller_epoch: int = 0
        self._timeout = session_timeout_ms / 1000
        self._epochs = itertools.count()
        self._sessions: dict[int, BrokerSession] = {}

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._sessions

    def register(self, node_id: int) -> None:
        """Open a session; an earlier session of the node must be closed."""
        self._sessions[node_id] = BrokerSession(next(self._epochs))
        self._elect()

    def mark_lost(self, node_id: int, now: float) -> None:
        """Start the session timeout of a broker that has stopped."""
        self._sessions[node_id].expires_at = now + self._timeout

    def next_expiry(self) -> float:
        """Return the time when the next session expires, infinity if all brokers run."""
        return min((session.expires_at for session in self._sessions.values()), default=math.inf)

    def expired_nodes(self, now: float) -> list[int]:
        """Return the ids of the brokers whose sessions have expired."""
        return [node_id for node_id, session in self._sessions.items() if session.expires_at <= now]

    def close(self, node_id: int) -> None:
        """Remove a session, and elect another controller if it was the controller's."""
        del self._sessions[node_id]
        self._elect()

    def _elect(self) -> None:
        if self.controller_id in self._sessions:
            return
        self.controller_id = next(iter(self._sessions), -1)
        if self.controller_id >= 0:
            self.controller_epoch += 1
