"""SIGTERM, by which Spark ends the process of a query without another word.

The signal wakes a thread, which has the members leave and ends the process. The handler itself
does nothing: it would run in the midst of whatever the main thread is doing, locks and all.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger("kohort.spark_connector")

LEAVE_TIMEOUT_S = 3.0
"""Seconds that the members have to leave; the process ends then in any case."""
EXIT_STATUS = 128 + signal.SIGTERM


class GroupLeaver(Protocol):
    """What is to leave its group."""

    def request_end(self) -> None: ...
    def wait_ended(self, seconds: float) -> bool: ...


_leavers: set[GroupLeaver] = set()
_undo: list[Callable[[], None]] = []


def leave_on_sigterm(leaver: GroupLeaver) -> Callable[[], None]:
    """Have it leave before SIGTERM ends the process; returns what undoes that.

    Nothing is done outside of the main thread, or where somebody else handles the signal.
    """
    if not _undo:
        if threading.current_thread() is not threading.main_thread():
            return _do_nothing
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            logger.info("SIGTERM has a handler already: it has to stop the query")
            return _do_nothing
        try:
            _undo.append(_install())
        except (RuntimeError, MemoryError) as error:
            logger.warning(
                "SIGTERM will end the query before it leaves its group: no thread for it: %s",
                str(error),
            )
            return _do_nothing
    _leavers.add(leaver)

    def undo() -> None:
        _leavers.discard(leaver)
        if not _leavers and _undo and threading.current_thread() is threading.main_thread():
            _undo.pop()()

    return undo


def _do_nothing() -> None:
    """There is nothing to undo."""


def _install() -> Callable[[], None]:
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wait() -> None:
        # The numbers of all signals that Python handles come here; none when it is undone.
        with reader:
            while numbers := reader.recv(64):
                if signal.SIGTERM in numbers:
                    _leave()

    def ignore(number: int, frame: Any) -> None:
        """The thread sees to it; a second one changes nothing."""

    # The thread comes first: with the handler alone, SIGTERM would do nothing.
    try:
        threading.Thread(target=wait, name="kohort-spark-exit", daemon=True).start()
    except BaseException:
        reader.close()
        writer.close()
        raise
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, ignore)

    def undo() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        writer.close()

    return undo


def _leave() -> None:
    """Have all leave and end the process, after LEAVE_TIMEOUT_S at the latest."""
    try:
        # Another thread does it, as it may wait for a lock that a blocked thread holds.
        leaving = threading.Thread(target=_leave_groups, name="kohort-spark-leave", daemon=True)
        leaving.start()
        leaving.join(LEAVE_TIMEOUT_S)
    except RuntimeError:  # the process has as many threads as it may have
        _leave_groups()
    finally:
        os._exit(EXIT_STATUS)


def _leave_groups() -> None:
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    leaving = list(_leavers)
    for leaver in leaving:
        leaver.request_end()
    for leaver in leaving:
        leaver.wait_ended(max(0.0, deadline - time.monotonic()))
