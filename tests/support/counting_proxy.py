"""TCP proxy in threads that counts connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class CountingProxy:
    """Proxy that forwards connections to ``host:port``. ``connects`` counts them."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connects = 0
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _start(self, function: object, *args: object) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
                self.connects += 1
                theirs = socket.create_connection(self._target, timeout=60)
            except OSError:
                return
            theirs.settimeout(None)
            self._sockets += [ours, theirs]
            self._start(forward, ours, theirs)
            self._start(forward, theirs, ours)


def forward(source: socket.socket, target: socket.socket, passed: bytearray | None = None) -> None:
    """Forward bytes, the end of the stream and a reset. Add the bytes to ``passed``."""
    try:
        while data := source.recv(1 << 16):
            if passed is not None:
                passed += data
            target.sendall(data)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
