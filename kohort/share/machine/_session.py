"""The session of a share consumer at one leader (KIP-932), without I/O and clock.

Theory of operation. A leader remembers which partitions a member wants, and expects the requests
in order. The client counts an epoch for both kinds of requests, ShareFetch and ShareAcknowledge,
so only one of them is in flight. A request names what changed: partitions that are new, and
partitions to forget. Epoch 0 opens a session, names every partition and carries no
acknowledgement. Epoch -1 closes it.

Invariants:

1. At most one request is in flight.
2. After each response the next epoch is that which the leader expects, or the session is closed
   and the next request opens one. So a mismatch heals in two requests.
3. ``held`` has what the leader has after the latest response. That includes partitions that a
   ShareFetch named only for their acknowledgements. The next fetch forgets these.
4. An error that the leader counts as a request moves the epoch on. One that it may not have
   counted closes the session on this side.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kohort.errors import ErrorCode
from kohort.share.machine._membership import IdPartition
from kohort.types import NamedTuple

FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF

_ENDS: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        # The leader may have failed before or after it counted the request.
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class SessionRequest(NamedTuple):
    """What a request says about the session."""

    epoch: int
    added: frozenset[IdPartition]
    forgotten: frozenset[IdPartition]


class ShareSession:
    """The session at one leader."""

    def __init__(self) -> None:
        self.epoch: int = FIRST_EPOCH
        """The epoch of the next request."""
        self.held: frozenset[IdPartition] = frozenset()
        self.is_busy: bool = False
        """True while a request is in flight."""
        self.acquired: int | None = None
        """The number of offsets in the latest response to a fetch, set by the client, or None."""
        self._pending: frozenset[IdPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """True if the leader has a session, so that requests may acknowledge records."""
        return self.epoch > FIRST_EPOCH

    def fetch(
        self, wanted: frozenset[IdPartition], acknowledged: Collection[IdPartition]
    ) -> SessionRequest:
        """Begin a ShareFetch for the partitions, with acknowledgements of others."""
        assert not self.is_busy and (self.is_open or not acknowledged)
        self.is_busy = True
        named = wanted | frozenset(acknowledged)
        forgotten = self.held - named if self.is_open else frozenset()
        added = named - self.held if self.is_open else named
        self._pending = named
        return SessionRequest(self.epoch, added, forgotten)

    def acknowledge(self, *, closes: bool = False) -> int:
        """Begin a ShareAcknowledge, and return its epoch. ``closes`` ends the session."""
        assert not self.is_busy and self.is_open
        self.is_busy = True
        self._pending = self.held
        return LAST_EPOCH if closes else self.epoch

    def answered(self, code: int) -> bool:
        """Note a response. Return False if the session has ended, and with it the locks."""
        self.is_busy = False
        if code in _ENDS:
            self.reset()
            return False
        if code == 0:
            self.held = self._pending
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def reset(self) -> None:
        """Forget the session, after a lost connection or a closing request."""
        self.is_busy = False
        self.epoch, self.held = FIRST_EPOCH, frozenset()
