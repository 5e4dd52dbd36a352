"""Calls of the user's functions and of blocking functions, off the event loop.

A login waits for such a call, so :class:`Waiting` gives the reason for missing credentials.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from kohort.errors import CredentialsUnavailableError, SecurityError

T = TypeVar("T")

CALL_SECONDS = 10.0
"""Longest time that a provider of credentials or tokens may take."""
MAX_THREADS = 8
"""Threads of an event loop that log in at a time. A call that hangs occupies one."""
FULL_SECONDS = 0.1
"""Pause before the next look where all threads are occupied."""
LATE_SECONDS = 1.0
"""Seconds after which a call that has not returned is mentioned."""

_threads: anyio.lowlevel.RunVar[list[threading.Thread]] = anyio.lowlevel.RunVar(
    "kohort.security.threads"
)


class _ThreadCall(Generic[T]):
    """A call in a daemon thread: one that hangs does not keep the process from exiting."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.thread = threading.Thread(target=self._run, name="kohort-login", daemon=True)
        self._function = function
        self._context = contextvars.Context()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._over = threading.Event()

    def wait(self) -> list[T]:
        """Make the call, and return its result in a list. Empty after give_up()."""
        # That of a worker thread, which belongs to no event loop.
        self._context = contextvars.copy_context()
        self.thread.start()
        self._over.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it has this frame in its traceback
        result, self._result = self._result, []
        return result

    def give_up(self) -> None:
        """End wait(). The thread goes on until the call returns."""
        self._over.set()

    def _run(self) -> None:
        try:
            self._result = [self._context.run(self._function)]
        except BaseException as error:
            self._error = error
        self._over.set()


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread. A cancelled caller does not wait for it."""
    try:
        threads = _threads.get()
    except LookupError:
        threads = []
        _threads.set(threads)
    while len(_alive(threads)) >= MAX_THREADS:  # noqa: ASYNC110 (threads set no event)
        await anyio.sleep(FULL_SECONDS)
    call = _ThreadCall(function)
    threads.append(call.thread)
    try:
        (result,) = await anyio.to_thread.run_sync(
            call.wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
        return result
    finally:
        call.give_up()


def _alive(threads: list[threading.Thread]) -> list[threading.Thread]:
    """Remove the threads that ended. Those that have not begun stay."""
    threads[:] = [each for each in threads if each.ident is None or each.is_alive()]
    return threads


async def call(function: Callable[[], Any], seconds: float = CALL_SECONDS) -> Any:
    """Call a function of the user's, sync or async, and return its result.

    A coroutine function runs on the event loop, any other function in a worker thread. Raises
    TimeoutError after ``seconds``, and what the function raises.
    """
    with anyio.fail_after(seconds):
        if inspect.iscoroutinefunction(function):
            return await function()
        # In a tuple, because trio refuses a function that returns a coroutine.
        (result,) = await in_thread(lambda: (function(),))
        return await result if inspect.isawaitable(result) else result


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
