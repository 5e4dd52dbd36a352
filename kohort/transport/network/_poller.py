"""A selector that receives whole frames without the interpreter's lock.

A thread that waits for a socket needs the lock after each system call. A busy thread of the
program keeps it for up to 5 ms each time. The compiled selector takes it once for each frame. It
exists on Linux where the compiled module was built.
"""

from __future__ import annotations

import os
import select
import selectors
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kohort.protocol import Buffer
from kohort.records import compiled_module
from kohort.transport.network._bytes import Progress

SOURCES = ("_poller_c.pyx",)
"""Source files of the compiled module."""
SMALL = 64 << 10
"""Most bytes of buffers that are joined and sent in one piece."""


class FrameReceiver:
    """A receiver of frames from one socket, while the event loop waits in the selector."""

    def __init__(self, poller: Any, receiver: Any) -> None:
        self._poller = poller
        self._receiver = receiver
        poller.add(receiver)

    @property
    def done(self) -> bool:
        """True if the frame was received, does not fit, has another id, or failed."""
        return bool(self._receiver.done)

    def start(self, view: memoryview, awaited_id: Callable[[], int | None]) -> None:
        """Receive the next frame into ``view``, without its prefix, if it fits.

        The receiver is done early if the frame does not begin with ``awaited_id()``, unless that is
        None.
        """
        self._receiver.start(view, awaited_id)

    def advance(self) -> None:
        """Receive the available bytes, if the selector did not."""
        if not self._receiver.done:
            self._receiver.advance()

    def result(self) -> tuple[bytes, int]:
        """Return the bytes of the prefix and the number of bytes in the view. Raises OSError."""
        if error := self._receiver.error:
            raise OSError(error, os.strerror(error))
        return self._receiver.prefix, self._receiver.filled

    def progress(self) -> Progress:
        """Return the number of received bytes of the frame, and their times."""
        receiver = self._receiver
        size = len(receiver.prefix) + receiver.filled
        return Progress(size, receiver.first_at, receiver.last_at)

    def stop(self) -> None:
        """Release the view."""
        self._receiver.stop()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send without waiting and return the number of bytes. Raises OSError."""
        size = count = 0
        for buffer in buffers:
            size += memoryview(buffer).nbytes
            if count and size > SMALL:
                break
            count += 1
        piece = buffers[0] if count == 1 else b"".join(buffers[:count])
        return int(self._receiver.send(piece))

    def close(self) -> None:
        """Remove the socket from the selector."""
        self._receiver.stop()
        self._poller.discard(self._receiver)


class FrameSelector:
    """A replacement for the waits of an EpollSelector, by the compiled ``Poller``."""

    def __init__(self, compiled: Any, inner: selectors.EpollSelector) -> None:
        self._keys = inner.get_map()
        self._compiled = compiled
        self._poller = compiled.Poller(inner.fileno())

    def receiver(self, fd: int) -> FrameReceiver:
        """Return the receiver of a non-blocking socket."""
        return FrameReceiver(self._poller, self._compiled.Receiver(fd))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the method of the selector does, and receive frames meanwhile."""
        found: list[tuple[selectors.SelectorKey, int]] = []
        for fd, events in self._poller.poll(-1.0 if timeout is None else max(0.0, timeout)):
            key = self._keys.get(fd)
            if key is not None:
                ready = 0
                if events & ~select.EPOLLIN:
                    ready |= selectors.EVENT_WRITE
                if events & ~select.EPOLLOUT:
                    ready |= selectors.EVENT_READ
                found.append((key, ready & key.events))
        return found


def make_frame_selector(inner: selectors.BaseSelector) -> FrameSelector | None:
    """Return a frame selector for this selector.

    Return None if the module is not built, or for a selector of another kind. gevent removes
    EpollSelector.
    """
    epoll = getattr(selectors, "EpollSelector", None)
    if sys.platform != "linux" or epoll is None or not isinstance(inner, epoll):
        return None
    compiled = compiled_module("_poller_c", "kohort.transport.network", SOURCES)
    return None if compiled is None else FrameSelector(compiled, inner)
