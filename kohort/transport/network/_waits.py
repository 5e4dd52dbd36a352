"""Waits of a reader and a sender that share one socket.

In TLS each of them may wait for both directions. A received key update, for example, needs a
response before reading continues. An event loop allows one waiting task for each direction.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import anyio

from kohort.transport.network._loop import CallbackLoop, OneShot, suspended


class SocketWaits:
    """The waits for a socket to become readable or writable, for a reader and a sender.

    After read_with(), the reader is a coroutine that the event loop runs as a callback.
    """

    __slots__ = (
        "_blocked",
        "_closed",
        "_loop",
        "_on_readable",
        "_readable",
        "_reader_waits",
        "_socket",
        "_writable",
    )

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop: CallbackLoop | None = None
        self._on_readable: Callable[[], None] | None = None
        self._blocked = False
        """True while the reader of read_with() waits until the socket is writable."""
        self._reader_waits = False
        self._readable: OneShot | None = None
        """Event for the sender, set when the reader finds the socket readable."""
        self._writable: OneShot | None = None
        """Event that is set when the socket is writable. None while no task waits for it."""
        self._closed = False

    @property
    def in_callbacks(self) -> bool:
        """True if the event loop calls the reader."""
        return self._loop is not None

    def read_with(self, loop: CallbackLoop, on_readable: Callable[[], None]) -> bool:
        """Have the event loop call ``on_readable``. Return False if it cannot watch sockets."""
        try:
            loop.add_reader(self._socket, self._became_readable)
        except NotImplementedError:
            return False
        self._loop, self._on_readable = loop, on_readable
        return True

    def stop_reading(self) -> None:
        """Stop the calls of the reader."""
        loop, self._loop, self._on_readable = self._loop, None, None
        if loop is not None and not loop.is_closed() and not self._closed:
            loop.remove_reader(self._socket)
            if self._writable is not None:
                loop.remove_writer(self._socket)
                self._set_writable()

    def close(self) -> None:
        """Wake all waiting tasks, before the socket is closed."""
        self.stop_reading()
        self._closed = True
        anyio.notify_closing(self._socket)
        self._set_writable()
        self._set_readable()

    # -- the reader ---------------------------------------------------------------------------

    async def reader_until_readable(self) -> None:
        """Wait in the reader until the socket is readable."""
        if self._loop is not None:
            await suspended()
            return
        self._reader_waits = True
        try:
            await anyio.wait_readable(self._socket)
        finally:
            self._reader_waits = False
            self._set_readable()

    async def reader_until_writable(self) -> None:
        """Wait in the reader until the socket is writable."""
        if self._loop is None:
            return await self.until_writable()
        # Received bytes must not call the reader in the meantime.
        self._loop.remove_reader(self._socket)
        self._blocked = True
        self._watch_writable(self._loop)
        await suspended()

    # -- the sender ---------------------------------------------------------------------------

    async def until_readable(self) -> None:
        """Wait in the sender until the socket is readable, even if the reader waits for that."""
        if self._loop is None and not self._reader_waits:
            await anyio.wait_readable(self._socket)
            return
        if self._readable is None:
            self._readable = OneShot()
        await self._readable.wait()

    async def until_writable(self) -> None:
        """Wait until the socket is writable."""
        if self._loop is not None:
            await self._watch_writable(self._loop).wait()
        elif self._writable is not None:
            await self._writable.wait()
        else:
            self._writable = OneShot()
            try:
                await anyio.wait_writable(self._socket)
            finally:
                self._set_writable()

    def _watch_writable(self, loop: CallbackLoop) -> OneShot:
        if self._writable is None:
            self._writable = OneShot()
            loop.add_writer(self._socket, self._became_writable)
        return self._writable

    def _became_readable(self) -> None:
        if self._on_readable is not None:
            self._on_readable()
        if self._readable is not None:
            self._set_readable()

    def _became_writable(self) -> None:
        loop, on_readable = self._loop, self._on_readable
        if loop is None or on_readable is None:
            return
        loop.remove_writer(self._socket)
        self._set_writable()
        if self._blocked:
            self._blocked = False
            loop.add_reader(self._socket, self._became_readable)
            on_readable()

    def _set_writable(self) -> None:
        event, self._writable = self._writable, None
        if event is not None:
            event.set()

    def _set_readable(self) -> None:
        event, self._readable = self._readable, None
        if event is not None:
            event.set()
