"""A network in memory, with brokers whose responses a test defines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

from kohort.protocol import (
    APIS,
    Buffer,
    FrameReader,
    Request,
    Response,
    decode_request,
    encode_response,
)
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
)
from kohort.transport import NETWORK_ERRORS, ByteConnection, TaskSignal

Exchange: TypeAlias = tuple[RequestHeader, Request[Response]]
Answer: TypeAlias = Callable[[RequestHeader, Request[Response]], Response | None]
"""Function that returns the response to a request. None means no response."""


class Pipe:
    """Bytes in one direction."""

    def __init__(self, window: int) -> None:
        self.data = bytearray()
        self.ended = False
        self.reset = False
        self.changed = TaskSignal()
        self.window = window

    async def write(self, data: Buffer) -> None:
        for start in range(0, len(data), 1 << 16):
            while len(self.data) >= self.window and not (self.ended or self.reset):
                await self.changed.wait()
            if self.ended or self.reset:
                raise BrokenPipeError("the peer is gone")
            self.data += data[start : start + (1 << 16)]
            self.changed.notify()

    async def read_into(self, view: memoryview) -> int:
        while not self.data and not self.ended and not self.reset:
            await self.changed.wait()
        if self.reset:
            raise ConnectionResetError("reset by the peer")
        size = min(len(view), len(self.data))
        view[:size] = self.data[:size]
        del self.data[:size]
        self.changed.notify()
        return size

    def end(self) -> None:
        self.ended = True
        self.changed.notify()

    def break_off(self) -> None:
        self.reset = True
        self.changed.notify()


class MemoryConnection:
    """One end of a connection: a ByteConnection."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, largest: int = 1 << 30) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.largest = largest
        self.closed = False

    async def recv_into(self, view: memoryview, /) -> int:
        if self.closed:
            raise anyio.ClosedResourceError
        size = await self.incoming.read_into(view[: self.largest])
        if self.closed:
            raise anyio.ClosedResourceError
        return size

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        await self.outgoing.write(b"".join(buffers))

    async def aclose(self) -> None:
        self.closed = True
        self.incoming.end()
        self.outgoing.end()


def connected_pair(
    window: int = 1 << 30, largest: int = 1 << 30
) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two ends. The first one receives at most ``largest`` bytes at a time."""
    there, back = Pipe(window), Pipe(window)
    return MemoryConnection(back, there, largest), MemoryConnection(there, back)


class Peer:
    """The broker's end of one connection."""

    def __init__(self, connection: MemoryConnection) -> None:
        self.connection = connection
        self._frames = FrameReader(1 << 30)
        self._ready: list[bytes] = []

    async def receive_frame(self) -> bytes | None:
        """Return the bytes of the next request. None if the client has closed."""
        buffer = bytearray(1 << 16)
        while not self._ready:
            size = await self.connection.recv_into(memoryview(buffer))
            if not size:
                return None
            self._ready += self._frames.feed(bytes(buffer[:size]))
        return self._ready.pop(0)

    async def receive(self) -> Exchange | None:
        frame = await self.receive_frame()
        return None if frame is None else decode_request(frame)

    async def expect(self, kind: type[Request[Any]]) -> Exchange:
        """Return the next request, which has to be of this type."""
        exchange = await self.receive()
        assert exchange is not None
        assert isinstance(exchange[1], kind)
        return exchange

    async def reply(self, header: RequestHeader, response: Response) -> None:
        await self.send(answer_bytes(header, response))

    async def send(self, data: Buffer) -> None:
        await self.connection.send([data])

    async def shake_hands(self, response: ApiVersionsResponse | None = None) -> None:
        """Respond to the ApiVersions request that opens every connection."""
        header, _ = await self.expect(ApiVersionsRequest)
        await self.reply(header, response or api_versions())

    async def close(self) -> None:
        await self.connection.aclose()

    def reset(self) -> None:
        """Reset both directions, as a killed process does."""
        self.connection.incoming.break_off()
        self.connection.outgoing.break_off()


def answer_bytes(header: RequestHeader, response: Response) -> bytes:
    """Return the whole frame of a response."""
    return b"".join(encode_response(response, header.request_api_version, header.correlation_id))


def api_versions(ranges: dict[int, tuple[int, int]] | None = None) -> ApiVersionsResponse:
    """Return the versions that kohort knows, except for the APIs in ``ranges``."""
    table = {int(key): (api.versions.first, api.versions.last) for key, api in APIS.items()}
    table.update(ranges or {})
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in table.items()
        ]
    )


Serve: TypeAlias = Callable[[Peer], Awaitable[None]]


class Network:
    """Addresses and their listeners. ``connect`` is the hook for the client."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self.listeners: dict[tuple[str, int], Serve] = {}
        self.attempts: list[tuple[float, str, int]] = []
        self.ends: list[MemoryConnection] = []

    def listen(self, host: str, port: int, serve: Serve) -> None:
        self.listeners[host, port] = serve

    async def connect(self, host: str, port: int) -> ByteConnection:
        self.attempts.append((anyio.current_time(), host, port))
        await anyio.lowlevel.checkpoint()
        serve = self.listeners.get((host, port))
        if serve is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = connected_pair()
        self.ends.append(ours)
        self._tasks.start_soon(self._serve, serve, Peer(theirs))
        return ours

    async def _serve(self, serve: Serve, peer: Peer) -> None:
        try:
            await serve(peer)
        except NETWORK_ERRORS:
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await peer.close()

    @property
    def open_ends(self) -> int:
        """Number of connections that the client has not closed."""
        return sum(not end.closed for end in self.ends)


class Broker:
    """A broker on the network. ``answer`` overrides its default responses."""

    def __init__(self, cluster: FakeCluster, node_id: int, host: str, port: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host
        self.port = port
        self.requests: list[Request[Response]] = []
        self.greetings: list[ApiVersionsRequest] = []
        self.peers: list[Peer] = []
        self.answer: Answer | None = None
        self.up()

    def up(self) -> None:
        self.cluster.network.listen(self.host, self.port, self._serve)

    def down(self) -> None:
        """Refuse new connections and reset the open ones."""
        self.cluster.network.listeners.pop((self.host, self.port), None)
        for peer in self.peers:
            peer.reset()
        self.peers.clear()

    async def _serve(self, peer: Peer) -> None:
        self.peers.append(peer)
        header, greeting = await peer.expect(ApiVersionsRequest)
        assert isinstance(greeting, ApiVersionsRequest)
        self.greetings.append(greeting)
        if greeting.cluster_id is not None and (greeting.cluster_id, greeting.node_id) != (
            self.cluster.cluster_id,
            self.node_id,
        ):
            return await peer.reply(header, ApiVersionsResponse(error_code=129))
        await peer.reply(header, self.cluster.versions)
        while (exchange := await peer.receive()) is not None:
            header, request = exchange
            self.requests.append(request)
            response: Response | None
            if self.answer is not None:
                response = self.answer(header, request)
            elif isinstance(request, MetadataRequest):
                response = self.cluster.describe(request)
            else:
                response = type(request).response()
            if response is not None:
                await peer.reply(header, response)

    def count(self, kind: type[Request[Any]]) -> int:
        """Return the number of received requests of a type."""
        return sum(isinstance(request, kind) for request in self.requests)


class FakeCluster:
    """Brokers b1, b2, ... on port 9092, and topics as the metadata describes them."""

    def __init__(self, network: Network, brokers: int = 1) -> None:
        self.network = network
        self.versions = api_versions()
        self.cluster_id = "c"
        self.topics: dict[str, MetadataResponse.MetadataResponseTopic] = {}
        self.asked: list[list[str] | None] = []
        self.brokers = [Broker(self, index, f"b{index}", 9092) for index in range(1, brokers + 1)]

    def add_topic(self, name: str, leaders: Iterable[int], *, epoch: int = 0) -> None:
        self.topics[name] = topic_answer(name, leaders, epoch=epoch)

    def describe(self, request: MetadataRequest) -> MetadataResponse:
        names = None if request.topics is None else [str(each.name) for each in request.topics]
        self.asked.append(names)
        return MetadataResponse(
            cluster_id=self.cluster_id,
            controller_id=1,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=each.node_id, host=each.host, port=each.port, rack=None
                )
                for each in self.brokers
            ],
            topics=[
                self.topics.get(name)
                or MetadataResponse.MetadataResponseTopic(name=name, error_code=3)
                for name in (self.topics if names is None else names)
            ],
        )


def topic_answer(
    name: str, leaders: Iterable[int], *, epoch: int = 0, topic_id: bytes = b"", error: int = 0
) -> MetadataResponse.MetadataResponseTopic:
    """Return a topic whose partitions 0, 1, ... have these leaders."""
    return MetadataResponse.MetadataResponseTopic(
        name=name,
        error_code=error,
        topic_id=topic_id or name.encode()[:16].ljust(16, b"."),
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
                error_code=0 if leader >= 0 else 5,
            )
            for index, leader in enumerate(leaders)
        ],
    )
