"""Share sessions: the partitions that a member fetches from a broker, and its requests' epoch.

A session is bound to the connection that opened it. ShareFetch and ShareAcknowledge of a member
share one session and one epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from kohort.broker.share._values import ShareKey
from kohort.errors import ErrorCode
from kohort.types import NamedTuple

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1


class SessionKey(NamedTuple):
    """A member of a group, at one broker."""

    group_id: str
    member_id: str


@dataclass(eq=False, slots=True)
class ShareSession:
    """A session of a member. ``epoch`` is that of its next request.

    ``partitions`` are those that each fetch reads, in the order in which requests named them.
    """

    key: SessionKey
    connection: Hashable
    epoch: int = 1
    partitions: dict[ShareKey, None] = field(default_factory=dict)

    def count_request(self) -> None:
        """Expect the next epoch."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def update(self, added: Iterable[ShareKey], forgotten: Iterable[ShareKey]) -> None:
        """Add partitions and forget others."""
        for key in added:
            self.partitions.setdefault(key)
        for key in forgotten:
            self.partitions.pop(key, None)

    def in_turn(self) -> list[ShareKey]:
        """Return the partitions in an order that rotates with the epoch of the request."""
        keys = list(self.partitions)
        first = (self.epoch - 1) % len(keys) if keys else 0
        return keys[first:] + keys[:first]


class ShareSessions:
    """The share sessions of a broker, at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._opened: dict[Hashable, ShareSession] = {}
        """Connection -> the session that it has opened last, which may be closed by now"""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, connection: Hashable) -> ShareSession | ErrorCode:
        """Open a session; the member's earlier one is dropped, and its locks stay."""
        if key not in self._sessions and len(self._sessions) >= self._limit:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[key] = self._opened[connection] = ShareSession(key, connection)
        return session

    def use(self, key: SessionKey, epoch: int) -> ShareSession | ErrorCode:
        """Return the session of a request, and count its epoch. The final epoch closes it."""
        session = self._sessions.get(key)
        if epoch == FINAL_EPOCH:
            return self._sessions.pop(key, None) or ErrorCode.SHARE_SESSION_NOT_FOUND
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.count_request()
        return session

    def close_connection(self, connection: Hashable) -> ShareSession | None:
        """Remove the session that a connection has opened last, and return it.

        A session that is closed already has no partitions. The result is None if the member has
        another session by now. As in Kafka, earlier sessions of the connection stay.
        """
        session = self._opened.pop(connection, None)
        if session is None or self._sessions.get(session.key, session) is not session:
            return None
        self._sessions.pop(session.key, None)
        return session

    def has_group(self, group_id: str) -> bool:
        """True if a member of the group has a session."""
        return any(key.group_id == group_id for key in self._sessions)
