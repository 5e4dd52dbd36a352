"""A connection that says exactly what a probe wants it to, over a blocking socket."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TypeVar

from kohort.protocol import Request, Response, decode_response, encode_request, encode_response

R = TypeVar("R", bound=Response)

ASKED: set[tuple[int, int]] = set()
"""(API key, version) of every request that was answered in this process."""

ANSWER_S = 10.0
PARKED_S = 0.15
"""A request without an answer for so long is taken to be parked."""
NEVER_S = 1.0
"""And where it is thought that no answer ever comes, for so long."""


class ConnectionClosed(Exception):
    """The broker ended the connection instead of answering."""


class Connection:
    """One connection to one broker. Requests may be pipelined: ``send`` now, ``receive`` later."""

    def __init__(self, host: str, port: int, client_id: str = "probe") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection((host, port), timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._waiting: list[tuple[int, type[Response], int]] = []

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Do a TLS handshake."""
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    def send(self, request: Request[R], version: int) -> None:
        """Send and do not wait."""
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self._client_id)
        self._waiting.append((self._correlation_id, request.response, version))
        self.send_bytes(b"".join(frame))

    def receive(self) -> Response:
        """The answer to the oldest request that has none yet.

        It must carry that request's correlation id, and the bytes that it is written with here
        must be those that came: nothing left over, no other way of saying the same.
        """
        correlation_id, cls, version = self._waiting.pop(0)
        frame = self.receive_frame()
        answered, response = decode_response(cls, version, frame)
        assert answered == correlation_id
        again = b"".join(encode_response(response, version, correlation_id))
        assert again[4:] == frame, f"{cls.__name__} version {version} is written another way"
        ASKED.add((cls.api_key, version))
        return response

    def ask(self, request: Request[R], version: int) -> R:
        """Send one request and wait for its answer."""
        self.send(request, version)
        response = self.receive()
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own

    def is_parked(self, seconds: float = PARKED_S) -> bool:
        """Whether no answer has come after so long."""
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(ANSWER_S)
        return False

    def silence(self) -> str:
        """Return what follows a request without an answer: "nothing" or "closed"."""
        self._waiting.pop()
        return "nothing" if self.is_parked() else "closed"

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def outcome(self) -> bytes | str:
        """The next frame as it came, or "closed"."""
        try:
            return self.receive_frame()
        except ConnectionClosed:
            return "closed"

    def outcome_of_response(self) -> Response | str:
        """The answer to the oldest request, or "closed"."""
        try:
            return self.receive()
        except ConnectionClosed:
            return "closed"

    def fate(self) -> str:
        """What becomes of the connection, whatever is answered: "answered" or "closed"."""
        return "closed" if self.outcome() == "closed" else "answered"

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                got = self._socket.recv(size - len(data))
            except (ConnectionResetError, ssl.SSLEOFError):
                got = b""
            if not got:
                raise ConnectionClosed
            data += got
        return bytes(data)

    def receive_some(self) -> bytes:
        """Return the next bytes, empty at the end."""
        try:
            return self._socket.recv(1000)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._socket.close()
