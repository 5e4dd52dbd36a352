"""The client of ``raw`` for a cluster in the test's event loop."""

from __future__ import annotations

from typing import TypeVar

from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.testing import MemoryCluster

R = TypeVar("R", bound=Response)


class MemoryRaw:
    """A client that opens a new connection for each request."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def ask(self, request: Request[R], version: int, node: int = 1) -> R:
        server = self._cluster.bootstrap_servers.split(",")[node - 1]
        host, port = server.rsplit(":", 1)
        connection = await self._cluster.connect(host, int(port))
        await connection.send(encode_request(request, version, 1, "raw"))

        async def exactly(size: int) -> bytes:
            data = memoryview(bytearray(size))
            have = 0
            while have < size:
                count = await connection.recv_into(data[have:])
                assert count, "the broker closed the connection"
                have += count
            return bytes(data)

        frame = await exactly(int.from_bytes(await exactly(4), "big"))
        await connection.aclose()
        _, response = decode_response(request.response, version, frame)
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own
