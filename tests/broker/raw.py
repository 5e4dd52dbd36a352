"""A client that sends any request over a blocking socket."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import FindCoordinatorRequest, JoinGroupRequest, JoinGroupResponse
from kohort.testing import Cluster

R = TypeVar("R", bound=Response)


class Raw:
    """One connection to one broker."""

    def __init__(self, cluster: Cluster | str, node: int = 1) -> None:
        servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
        host, port = servers.split(",")[node - 1].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._correlation_id = 0
        self._versions: list[tuple[type[Response], int]] = []

    def send(self, request: Request[R], version: int, client_id: str | None = "raw") -> int:
        """Send a request without a wait and return its correlation id."""
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, client_id)
        self.send_bytes(b"".join(frame))
        self._versions.append((request.response, version))
        return self._correlation_id

    def receive(self) -> tuple[int, Response]:
        """Return correlation id and response of the oldest request without a response."""
        cls, version = self._versions.pop(0)
        return decode_response(cls, version, self.receive_frame())

    def ask(self, request: Request[R], version: int, client_id: str | None = "raw") -> R:
        """Send one request and return its response."""
        sent = self.send(request, version, client_id)
        correlation_id, response = self.receive()
        assert correlation_id == sent
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise EOFError("the broker closed the connection")
            data += got
        return bytes(data)

    def is_closed(self) -> bool:
        """True if the broker closes the connection. The call waits for the next byte or the end."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def has_answer(self, seconds: float = 0.0) -> bool:
        """True if a response arrives within this time."""
        self.socket.settimeout(seconds or 0.001)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) != b""
        except (TimeoutError, BlockingIOError):
            return False
        finally:
            self.socket.settimeout(20)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def join_request(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    session_ms: int = 10_000,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = b"m",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name in protocols
        ],
    )


def find_coordinator(raw: Raw, group: str = "g") -> int:
    """Return the coordinator of a group. A group has none before the first such request."""
    response = raw.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    return response.coordinators[0].node_id


def join(
    raw: Raw, version: int = 9, *, group: str = "g", metadata: bytes = b"m"
) -> JoinGroupResponse:
    """Join with both rounds."""
    find_coordinator(raw, group)
    response = raw.ask(join_request(group=group, metadata=metadata), version)
    if response.error_code == 79:
        again = join_request(response.member_id, group=group, metadata=metadata)
        response = raw.ask(again, version)
    assert response.error_code == 0
    return response
