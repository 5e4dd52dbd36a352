"""Reasons for missing credentials: the retried failure, or a call that has not returned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from kohort.errors import CredentialsUnavailableError, SecurityError

LATE_SECONDS = 1.0
"""Seconds after which a call that has not returned is mentioned."""


class Waiting:
    """The calls of one source of credentials."""

    def __init__(
        self,
        source: str,
        kind: type[CredentialsUnavailableError] = CredentialsUnavailableError,
    ) -> None:
        self.error: CredentialsUnavailableError | None = None
        """The latest failure, or None after a success."""
        self._source = source
        self._kind = kind
        self._calls: dict[object, tuple[str, float]] = {}
        """Source that each call waits for, and the begin of the call by the event loop's clock."""

    @contextmanager
    def asking(self, source: str = "") -> Iterator[None]:
        """Note the body of the statement as a call of ``source``."""
        call = object()
        self._calls[call] = source or self._source, anyio.current_time()
        try:
            yield
        except CredentialsUnavailableError as error:
            # A copy, because the frames of the failed call are no longer needed.
            self.error = type(error)(*error.args)
            self.error.__cause__ = error.__cause__
            raise
        except SecurityError:
            self.error = None
            raise
        else:
            self.error = None
        finally:
            del self._calls[call]

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the error that keeps logins waiting, or None.

        ``now`` is a time of the event loop's clock. Safe from other threads.
        """
        if self.error is not None:
            return self.error
        source, begun = min(
            tuple(self._calls.values()), key=lambda call: call[1], default=("", now)
        )
        if now - begun < LATE_SECONDS:
            return None
        return self._kind(f"{source} has not returned for {now - begun:.0f} s")
