"""The result of a commit that was begun without waiting."""

from __future__ import annotations

import time
from concurrent import futures
from concurrent.futures import Future

from kohort.errors import KafkaTimeoutError


class CommitFuture(Future[None]):
    """A future whose waits without a timeout end as other calls of the consumer do."""

    def __init__(self, seconds: float, deadline: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._deadline = deadline

    def result(self, timeout: float | None = None) -> None:
        """Wait for the commit, ``timeout`` seconds at most, and raise its error.

        TimeoutError. With None: KafkaTimeoutError when the consumer thread has not answered one
        second after ``request_timeout_ms``, counted from the commit. The commit goes on.
        """
        return super().result(self._limit(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as :meth:`result` does; the error of the commit, or None."""
        return super().exception(self._limit(timeout))

    def _limit(self, timeout: float | None) -> float | None:
        if timeout is not None:
            return timeout
        futures.wait([self], max(0.0, self._deadline - time.monotonic()))
        if not self.done():
            raise thread_timeout(self._seconds)
        return None


def thread_timeout(seconds: float) -> KafkaTimeoutError:
    """Return the error of a call that the consumer thread has not answered."""
    return KafkaTimeoutError(
        f"the consumer's thread did not answer within {seconds:.1f} s: code that blocks runs in "
        "its event loop, or the process gets no CPU time. Repeat the call, or close the consumer"
    )
