"""A selector that receives whole frames without the interpreter's lock.

A thread that waits for a socket needs the lock after each system call, and a busy thread of the
program keeps it for up to 5 ms each time. The compiled selector takes it once for each frame. It is
there on Linux where the compiled module was built.
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

SOURCES = ("_poller_c.pyx", "_openssl.h")
"""The files that the compiled module is built from."""
SMALL = 64 << 10
"""Bytes that buffers are joined up to, to be sent in one piece."""


class FrameReceiver:
    """Receives one frame at a time from one socket, while the event loop waits in the selector."""

    def __init__(self, poller: Any, receiver: Any) -> None:
        self._poller = poller
        self._receiver = receiver
        poller.add(receiver)

    @property
    def done(self) -> bool:
        """True if the frame is there, does not fit, is another one, was stopped, or never comes."""
        return bool(self._receiver.done)

    @property
    def stopped(self) -> bool:
        """True if TLS has to do something else before the rest of the frame can be received."""
        return bool(self._receiver.stopped)

    def put(self, data: Buffer) -> None:
        """Go on with a frame that was stopped, behind these bytes of it."""
        self._receiver.put(data)

    def start(self, view: memoryview, awaited_id: Callable[[], int | None]) -> None:
        """Receive the next frame into ``view``, without its prefix, if it fits.

        It ends early if it does not begin with ``awaited_id()``, unless that is None.
        """
        self._receiver.start(view, awaited_id)

    def advance(self) -> None:
        """Receive what is there, if the selector did not."""
        if not self._receiver.done:
            self._receiver.advance()

    def result(self) -> tuple[bytes, int]:
        """Return the bytes of the prefix and the number of bytes in the view. OSError."""
        if error := self._receiver.error:
            raise OSError(error, os.strerror(error))
        return self._receiver.prefix, self._receiver.filled

    def stop(self) -> None:
        """Let go of the view."""
        self._receiver.stop()

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send what goes without waiting; return how many bytes. OSError."""
        size = count = 0
        for buffer in buffers:
            size += memoryview(buffer).nbytes
            if count and size > SMALL:
                break
            count += 1
        piece = buffers[0] if count == 1 else b"".join(buffers[:count])
        return int(self._receiver.send(piece))

    def close(self) -> None:
        """Have the selector forget the socket."""
        self._receiver.stop()
        self._poller.discard(self._receiver)


class FrameSelector:
    """The waits of an EpollSelector, by the compiled module's ``Poller``."""

    def __init__(self, compiled: Any, inner: selectors.EpollSelector) -> None:
        self._keys = inner.get_map()
        self._compiled = compiled
        self._poller = compiled.Poller(inner.fileno())

    def receiver(self, fd: int, records: Any = None) -> FrameReceiver:
        """Return what receives the frames of a non-blocking socket, over TLS by its records."""
        return FrameReceiver(self._poller, self._compiled.Receiver(fd, records))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Do what the method of the selector does, and receive frames meanwhile."""
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
    """Return one for this selector; None where it is not built, or for a selector of another kind.

    gevent takes EpollSelector away.
    """
    epoll = getattr(selectors, "EpollSelector", None)
    if sys.platform != "linux" or epoll is None or not isinstance(inner, epoll):
        return None
    compiled = compiled_module("_poller_c", "kohort.transport", SOURCES)
    return None if compiled is None else FrameSelector(compiled, inner)
