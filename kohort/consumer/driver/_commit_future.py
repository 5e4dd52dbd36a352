"""The futures that commit_async() returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent import futures
from concurrent.futures import Future
from typing import Any

from kohort.errors import IllegalStateError
from kohort.transport import OneShot


class CommitFuture(Future[None]):
    """A future whose waits always have a limit, as other calls of the consumer do."""

    def __init__(self, seconds: float, deadline: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._deadline = deadline

    @classmethod
    def of_call(cls, seconds: float) -> CommitFuture:
        """Return the future of a call with this timeout, which begins now."""
        return cls(seconds, time.monotonic() + seconds + 1)

    def finish(self, error: BaseException | None) -> None:
        """Set the outcome."""
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)

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
            from kohort.consumer.driver._thread import thread_timeout

            raise thread_timeout(self._seconds)
        return None


class AsyncCommitFuture:
    """The future of AsyncKafkaConsumer.commit_async(). ``await`` waits for the commit.

    It works on asyncio and trio. Methods other than ``await`` never wait.
    """

    def __init__(self) -> None:
        self._finished = OneShot()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Return True if the commit has ended."""
        return self._finished.is_set

    def cancelled(self) -> bool:
        """Return False, because a started commit cannot be cancelled."""
        return False

    def result(self) -> None:
        """Raise the error of the commit, or IllegalStateError if it has not ended."""
        error = self.exception()
        if error is not None:
            raise error

    def exception(self) -> BaseException | None:
        """Return the error of the commit or None. Raise IllegalStateError if it has not ended."""
        if not self.done():
            raise IllegalStateError("the commit has not ended: await its future first")
        return self._error

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        """Call ``function(future)`` when the commit has ended, or now if it has."""
        if self.done():
            function(self)
        else:
            self._callbacks.append(function)

    def finish(self, error: BaseException | None) -> None:
        """Set the outcome, and call the callbacks. Later calls have no effect."""
        if self.done():
            return
        self._error = error
        self._finished.set()
        callbacks, self._callbacks = self._callbacks, []
        for function in callbacks:
            function(self)

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._finished.wait().__await__()
        self.result()
