"""Servers that are no Kafka broker. A server sends the same bytes to every client, or nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TLS_ALERT = bytes.fromhex("15030300020228")
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
OVERSIZED = (1 << 30).to_bytes(4, "big") + b"x" * 100
NEGATIVE = b"\xff\xff\xff\xff" + b"x" * 100
SHORT = (2).to_bytes(4, "big") + b"xx"


@contextmanager
def server(says: bytes | None) -> Iterator[str]:
    """Listen and yield the address.

    The server sends ``says`` after the first bytes. It never responds if ``says`` is None.
    """
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            connections.append(link)
            if says is not None:
                threading.Thread(target=answer, args=(link, says), daemon=True).start()

    def answer(link: socket.socket, says: bytes) -> None:
        with link:
            try:
                if link.recv(1000):
                    link.sendall(says)
                while link.recv(1000):
                    pass
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for link in connections:
                link.close()
