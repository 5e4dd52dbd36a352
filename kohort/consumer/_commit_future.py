"""The future that commit_async() returns."""

from __future__ import annotations

import time
from concurrent import futures
from concurrent.futures import Future

from kohort.errors import KafkaTimeoutError


class CommitFuture(Future[None]):
    """A future whose waits always have a limit, as other calls of the consumer do."""

    def __init__(self, seconds: float, deadline: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._deadline = deadline

    def result(self, timeout: float | None = None) -> None:
        """Wait for the commit at most ``timeout`` seconds, and raise its error.

        Raises TimeoutError after ``timeout``. With None, raises KafkaTimeoutError if the consumer
        thread does not respond within ``request_timeout_ms`` and one second. This time counts from
        commit_async(). The commit continues after both errors.
        """
        return super().result(self._limit(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as :meth:`result` does, and return the error of the commit, or None."""
        return super().exception(self._limit(timeout))

    def _limit(self, timeout: float | None) -> float | None:
        if timeout is not None:
            return timeout
        futures.wait([self], max(0.0, self._deadline - time.monotonic()))
        if not self.done():
            raise thread_timeout(self._seconds)
        return None


def thread_timeout(seconds: float) -> KafkaTimeoutError:
    """Return the error of a call to which the consumer thread did not respond."""
    return KafkaTimeoutError(
        f"the consumer thread did not respond within {seconds:.1f} s: blocking code runs in its "
        "event loop, or the process gets no CPU time. Repeat the call, or close the consumer"
    )
