"""SIGTERM handling. Spark ends the process of a query with SIGTERM.

The signal wakes a thread. The thread lets the members leave their groups and ends the process. The
handler itself does nothing, because it interrupts the main thread, which may hold locks.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from kohort.logs import error_text, get_logger

logger = get_logger("kohort.spark_connector")

LEAVE_TIMEOUT_S = 5.0
"""Seconds in which the members can leave. Then the process ends in any case."""
EXIT_STATUS = 128 + signal.SIGTERM


class GroupLeaver(Protocol):
    """Member that can leave its group."""

    def request_end(self) -> None: ...
    def wait_ended(self, seconds: float) -> bool: ...


_leavers: set[GroupLeaver] = set()
_undo: list[Callable[[], None]] = []


def leave_on_sigterm(leaver: GroupLeaver) -> Callable[[], None]:
    """Let a member leave its group before SIGTERM ends the process. Return a function to undo it.

    Do nothing outside the main thread, or if SIGTERM has another handler.
    """
    if not _undo:
        if threading.current_thread() is not threading.main_thread():
            return _do_nothing
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            logger.info("SIGTERM already has a handler, which has to stop the query")
            return _do_nothing
        try:
            _undo.append(_install())
        except (RuntimeError, MemoryError) as error:
            logger.warning(
                "no thread for SIGTERM, which will end the query before it leaves its group: %s",
                error_text(error),
            )
            return _do_nothing
    _leavers.add(leaver)

    def undo() -> None:
        _leavers.discard(leaver)
        if not _leavers and _undo and threading.current_thread() is threading.main_thread():
            _undo.pop()()

    return undo


def _do_nothing() -> None:
    """Undo nothing, because nothing was installed."""


def _install() -> Callable[[], None]:
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wait() -> None:
        # Python writes the number of each handled signal. After undo() recv() returns no bytes.
        with reader:
            while numbers := reader.recv(64):
                if signal.SIGTERM in numbers:
                    _leave()

    def ignore(number: int, frame: Any) -> None:
        """Ignore the signal, because the thread handles it. Another SIGTERM has no effect."""

    # Start the thread first: with the handler alone, SIGTERM would have no effect.
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
    """Let all members leave and end the process, at the latest after LEAVE_TIMEOUT_S."""
    try:
        # Leave in another thread, because leaving may wait for a lock of a blocked thread.
        leaving = threading.Thread(target=_leave_groups, name="kohort-spark-leave", daemon=True)
        leaving.start()
        leaving.join(LEAVE_TIMEOUT_S)
    except RuntimeError:  # the process cannot start another thread
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
