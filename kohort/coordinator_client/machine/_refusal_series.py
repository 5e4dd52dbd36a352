"""The limits of a series of requests that the coordinator refuses with one error code."""

from __future__ import annotations

import math

from kohort.errors import ErrorCode

SERVER_ERRORS = 8
"""Number of responses with UNKNOWN_SERVER_ERROR in a row after which the request fails.

The code means that the broker failed, such as an assignor of it. The next request may succeed.
"""
_LIMITS: dict[int, float] = {
    ErrorCode.UNRELEASED_INSTANCE_ID: math.inf,
    ErrorCode.UNKNOWN_SERVER_ERROR: SERVER_ERRORS,
}
"""Numbers of responses by error code. Each series also ends after a session timeout."""


class RefusalSeries:
    """Responses in a row with one error code that a retry may end.

    Any other outcome of a request ends the series, and so does another coordinator. It waits a
    whole session for the other holder of an instance id.
    """

    def __init__(self, session_timeout: float) -> None:
        self._session_timeout = session_timeout
        self._code = 0
        self._since = 0.0
        self._count = 0

    def allows_retry(self, code: int, now: float) -> bool:
        """Count a response with this error code. Return True if the request must be repeated."""
        if code != self._code:
            self._code, self._since, self._count = code, now, 0
        self._count += 1
        is_early = now - self._since < self._session_timeout
        return is_early and self._count < _LIMITS.get(code, 0)

    def end(self) -> None:
        """Begin with a new series at the next response."""
        self._code = 0
