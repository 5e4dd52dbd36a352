"""The state of a consumer's life, from its constructor to the end of close() or of the process.

At the end of a process, consumers that were not closed leave their groups. Otherwise their
partitions have no reader until the session expires. A consumer of asyncio also leaves when its
event loop ends (see Engine.run), and on trio its block closes it. That commits nothing, calls none
of the program's code, and starts no thread, which an exiting interpreter refuses.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol

from kohort.errors import ConsumerClosedError, ForkedConsumerError, WakeupError
from kohort.types import NamedTuple


class ConsumerState(Enum):
    """The states of a consumer's life. :data:`MOVES` has the transitions."""

    NEW = "not started"
    STARTING = "starting"
    """The thread or task of the engine is being started."""
    ABORTING = "aborting"
    """The engine did not start, and is being ended. NEW follows."""
    RUNNING = "running"
    RESETTING = "resetting"
    """start() failed while the engine ran, and the engine is being replaced. NEW follows."""
    CLOSING = "closing"
    CLOSED = "closed"


MOVES: dict[ConsumerState, frozenset[ConsumerState]] = {
    ConsumerState.NEW: frozenset({ConsumerState.STARTING, ConsumerState.CLOSING}),
    ConsumerState.STARTING: frozenset(
        {
            ConsumerState.NEW,
            ConsumerState.ABORTING,
            ConsumerState.RUNNING,
            ConsumerState.CLOSING,
        }
    ),
    ConsumerState.ABORTING: frozenset({ConsumerState.NEW}),
    ConsumerState.RUNNING: frozenset({ConsumerState.RESETTING, ConsumerState.CLOSING}),
    ConsumerState.RESETTING: frozenset({ConsumerState.NEW}),
    ConsumerState.CLOSING: frozenset(),
    ConsumerState.CLOSED: frozenset(),
}
"""State -> the states that may follow. CLOSED may follow any state, for example after fork()."""


_ENDING = frozenset(
    {
        ConsumerState.ABORTING,
        ConsumerState.RESETTING,
        ConsumerState.CLOSING,
        ConsumerState.CLOSED,
    }
)


class CloseRequest(NamedTuple):
    """The arguments of a close() inside a callback, which runs when the callback has ended."""

    autocommit: bool
    timeout: float
    leave_group: bool | None


class ConsumerLife:
    """The state of one consumer, with the process and the event loop that it lives in."""

    def __init__(self) -> None:
        self.what = "consumer"
        """What errors call the object. An admin client has such a life, too."""
        self.state = ConsumerState.NEW
        self.pid: int | None = None
        """The process in which the engine was started; None before the start."""
        self.loop: object = None
        """The event loop in which the async API started the engine."""
        self.close_request: CloseRequest | None = None
        self.is_unsubscribing = False
        """True from an unsubscribe() until the listener has been called for it (async API)."""
        self.left_with_error = False
        """True if an exception left the block, so the last records may not be processed."""
        self.failure: str | None = None
        """The name of the error that left the block. A cancellation or Ctrl-C is none."""

    def note_left(self, error: type[BaseException] | None) -> None:
        """Note the exception that left the block, if there is one."""
        self.left_with_error = error is not None
        # The program itself calls wakeup(), usually to stop.
        if error is not None and issubclass(error, Exception):
            self.failure = None if issubclass(error, WakeupError) else error.__name__

    def move(self, to: ConsumerState, *, only_from: ConsumerState | None = None) -> None:
        """Set the state. Raise RuntimeError if it may not follow the current one.

        With ``only_from``, do nothing in another state. A signal handler or another thread may
        close the consumer while it starts.
        """
        if only_from is not None:
            if self.state is only_from:  # no call follows, so neither of them comes between
                self.state = to
            return
        if to not in (ConsumerState.CLOSED, self.state) and to not in MOVES[self.state]:
            raise RuntimeError(f"internal error in kohort: a consumer moved {self.state} to {to}")
        self.state = to

    @property
    def is_closed(self) -> bool:
        """True from the end of the engine in close()."""
        return self.state is ConsumerState.CLOSED

    @property
    def is_ending(self) -> bool:
        """True while close() or the end of a failed start() runs, and after close()."""
        return self.state in _ENDING

    @property
    def is_started(self) -> bool:
        """True if the engine was started in any process."""
        return self.pid is not None

    @property
    def is_of_this_process(self) -> bool:
        """True unless the consumer was started before fork() in a parent of this process."""
        return self.pid is None or self.pid == os.getpid()

    def check_process(self) -> None:
        """Raise ForkedConsumerError in a child of the process that started the consumer."""
        if not self.is_of_this_process:
            raise ForkedConsumerError(
                f"the {self.what} cannot be used in this process: it was started before fork(), "
                "and its connections and its thread belong to the parent. Create a new "
                f"{self.what} here"
            )

    def check_usable(self) -> None:
        """Raise ConsumerClosedError if the consumer is closed, or ForkedConsumerError."""
        self.check_process()
        self.check_usable_for_mark()

    def check_usable_for_mark(self) -> None:
        """Do the same for a call that marks a record and sends nothing, without a system call.

        A child of a fork() in C, as of uWSGI, is not recognized here. Its next poll is refused.
        """
        if self.pid is not None and self.pid != _pid:
            self.check_process()
        if self.state is ConsumerState.CLOSED:
            raise ConsumerClosedError(f"the {self.what} is closed. Create a new one")

    def __str__(self) -> str:
        if self.is_closed:
            return "closed"
        if self.pid is None:
            return "not started"
        return "running" if self.is_of_this_process else "of another process"


_pid = os.getpid()
"""The id of this process, unless a fork() in C made it, which calls nothing of Python's."""


def _note_pid() -> None:
    global _pid
    _pid = os.getpid()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_pid)


EXIT_SECONDS = 1.0
"""Maximum seconds that all consumers of the process together delay its end."""


class LastRequestAtExit(NamedTuple):
    """The last request of a consumer. One of the two is set."""

    wait: Callable[[float], object] | None = None
    """Waits at most some seconds for the event loop that sends the request."""
    send: Callable[[], Awaitable[None]] | None = None
    """Sends the request in a new event loop, because that of the consumer does not run."""


class Leaver(Protocol):
    """A started consumer, or the thread of one that nothing refers to."""

    def _leave_at_exit(self) -> LastRequestAtExit | None:
        """Begin to leave the group. Return None if there is nothing to do."""


_started: weakref.WeakSet[Any] = weakref.WeakSet()


def leave_at_exit(started: Leaver) -> None:
    """Have a consumer leave its group at the end of the process, unless it is closed."""
    _started.add(started)


@atexit.register
def _leave_groups() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    with suppress(Exception):  # the process ends in any case, and the session expires
        leaving = [found for each in list(_started) if (found := each._leave_at_exit())]
        if sends := [each.send for each in leaving if each.send is not None]:
            import asyncio  # a program without async consumers ends without it

            asyncio.run(_send_all(sends, deadline))
        for each in leaving:
            if each.wait is not None:
                each.wait(max(0.0, deadline - time.monotonic()))


async def _send_all(sends: list[Callable[[], Awaitable[None]]], deadline: float) -> None:
    import asyncio

    tasks = [asyncio.ensure_future(send()) for send in sends]
    await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
