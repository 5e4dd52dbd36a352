"""The rule of the synchronous face: one thread at a time, and no way back in from a callback."""

from __future__ import annotations

import threading

from kohort.errors import IllegalStateError, ReentrantCallError

_OWNER = "owner"


class OwnerLock:
    """Whose turn it is to be inside poll() and its like.

    A dict's methods are atomic, where a lock and its owner would be two steps, and Ctrl-C between
    them would lock everybody out.
    """

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}

    @property
    def is_held_by_caller(self) -> bool:
        """The calling thread is inside: it is in a callback, or in a signal handler."""
        return self._owner.get(_OWNER) == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Nobody is inside."""
        return not self._owner

    def acquire(self, what: str) -> None:
        """Go in. ReentrantCallError from a callback, IllegalStateError if another thread is in."""
        if self.is_held_by_caller:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )
        me = threading.get_ident()
        if self._owner.setdefault(_OWNER, me) != me:
            raise IllegalStateError(
                f"{what} was called while another thread is inside the consumer: one thread at a "
                "time may use it"
            )

    def release(self) -> None:
        """Go out."""
        self._owner.pop(_OWNER, None)
