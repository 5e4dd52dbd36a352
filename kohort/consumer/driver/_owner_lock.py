"""The lock of the sync API: one thread at a time, and no reentrant calls from a callback."""

from __future__ import annotations

import threading

from kohort.errors import IllegalStateError, ReentrantCallError

_OWNER = "owner"


class OwnerLock:
    """The lock that a thread holds inside poll() and similar calls.

    It is a dict with one key, because the methods of a dict are atomic. A lock and its owner would
    be two steps, and an interrupt between them would lock out all threads (see _delivery, rule 4).
    """

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}

    @property
    def is_held_by_caller(self) -> bool:
        """True if the calling thread holds the lock, in a callback or in a signal handler."""
        return self._owner.get(_OWNER) == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """True if no thread holds the lock."""
        return not self._owner

    def acquire(self, what: str) -> None:
        """Acquire the lock without a wait.

        Raise ReentrantCallError in a callback, and IllegalStateError if another thread holds it.
        """
        if self.is_held_by_caller:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )
        me = threading.get_ident()
        if self._owner.setdefault(_OWNER, me) != me:
            raise IllegalStateError(
                f"{what} failed: another thread is inside the consumer. Use a consumer from one "
                "thread at a time"
            )

    def release(self) -> None:
        """Release the lock, if it is held."""
        self._owner.pop(_OWNER, None)
