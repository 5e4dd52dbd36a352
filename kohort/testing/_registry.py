"""Which brokers are there: an entry lives as long as its broker's session, and one leads them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass


@dataclass(slots=True)
class BrokerSession:
    """``ends``: when it runs out, if its broker does not come back; never while that is alive."""

    broker_epoch: int
    expires_at: float = math.inf


class BrokerRegistry:
    """Entries by node id. The controller is the first that asked, until its own session ends."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.controller_id: int = -1
        self.controller_epoch: int = 0
        self._timeout = session_timeout_ms / 1000
        self._epochs = itertools.count()
        self._sessions: dict[int, BrokerSession] = {}

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._sessions

    def register(self, node_id: int) -> None:
        """Open a session; an earlier one of the node must have been closed."""
        self._sessions[node_id] = BrokerSession(next(self._epochs))
        self._elect()

    def mark_lost(self, node_id: int, now: float) -> None:
        """The broker is not heard of any more: its entry stays until the session runs out."""
        self._sessions[node_id].expires_at = now + self._timeout

    def next_expiry(self) -> float:
        """When the next session runs out; infinity if all brokers are alive."""
        return min((session.expires_at for session in self._sessions.values()), default=math.inf)

    def expired_nodes(self, now: float) -> list[int]:
        """Whose session is over."""
        return [node_id for node_id, session in self._sessions.items() if session.expires_at <= now]

    def close(self, node_id: int) -> None:
        """The session is over, and if it was the controller's, another one takes that office."""
        del self._sessions[node_id]
        self._elect()

    def _elect(self) -> None:
        if self.controller_id in self._sessions:
            return
        self.controller_id = next(iter(self._sessions), -1)
        if self.controller_id >= 0:
            self.controller_epoch += 1
