"""Blocking connection that sends exactly the bytes of a probe."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TypeVar

from kohort.protocol import Request, Response, decode_response, encode_request, encode_response
from kohort.protocol.messages import ApiVersionsRequest

R = TypeVar("R", bound=Response)

ASKED: set[tuple[int, int]] = set()
"""API key and version of every request with a response in this process."""

EXPIRY_MS = 60_000
"""Time limit that runs out in a probe. A machine that stalls for less changes no observation."""
EXPIRED_S = EXPIRY_MS / 1000 + 5
"""Seconds after which such a limit is over."""
FAR_MS = 600_000
"""Time limit that never runs out in a probe. What ends sooner was ended by something else."""
ANSWER_S = 150.0
"""Seconds for a response: over a minute longer than ``EXPIRY_MS``, and shorter than ``FAR_MS``."""
PARKED_S = 0.15
"""Seconds without a response after which a request counts as parked."""
NEVER_S = EXPIRED_S
"""Seconds without a response after which none is expected."""


class ConnectionClosed(Exception):
    """The broker ended the connection without a response."""


class Connection:
    """Connection to one broker. Requests may be pipelined: ``send`` now, ``receive`` later."""

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
        """Receive the response to the oldest request without one.

        Its correlation id must be that of the request. Encoding it here must return the received
        bytes, without any left over.
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
        """Send one request and wait for its response."""
        self.send(request, version)
        response = self.receive()
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own

    def is_parked(self, seconds: float = PARKED_S) -> bool:
        """True if no response comes within this time."""
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(ANSWER_S)
        return False

    def silence(self) -> str:
        """Return what follows a request without a response: "nothing" or "closed"."""
        self._waiting.pop()
        try:
            self.ask(ApiVersionsRequest(), 0)
        except ConnectionClosed:
            return "closed"
        return "nothing"

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """Return the next frame without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def outcome(self) -> bytes | str:
        """Return the next frame as received, or "closed"."""
        try:
            return self.receive_frame()
        except ConnectionClosed:
            return "closed"

    def outcome_of_response(self) -> Response | str:
        """Return the response to the oldest request, or "closed"."""
        try:
            return self.receive()
        except ConnectionClosed:
            return "closed"

    def fate(self) -> str:
        """Return the state of the connection after any response: "answered" or "closed"."""
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
