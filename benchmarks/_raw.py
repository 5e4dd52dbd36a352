"""Fetches of one topic over blocking sockets: no group, no commits, no event loop.

This module writes the fetches itself, in version 4 of the API, so that the measured process spends
its time on the socket. The leaders come from one Metadata response of kohort's codec.
"""

from __future__ import annotations

import mmap
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from benchmarks._consumers import cafile

if TYPE_CHECKING:
    from kohort.protocol import Request, Response

R = TypeVar("R", bound="Response")

FETCH, FETCH_VERSION, METADATA_VERSION = 1, 4, 9
MAX_WAIT_MS, MIN_BYTES = 500, 1
CLIENT = b"raw"
TIMEOUT_S = 60.0
HEADROOM = 1 << 16
"""Bytes of a response besides its records, with 100 partitions."""

_REQUEST = struct.Struct(">ihhih3siiiibih")
_ASKED = struct.Struct(">iqi")
_FOUND = struct.Struct(">ihqqi")
_BATCH = struct.Struct(">qi11xi")
_BATCH_HEAD = 61
_ABORTED = 16

Take = Callable[[int, int, memoryview], int]
"""Function of partition, offset and the bytes of its batches. It returns the next offset."""


class FetchError(Exception):
    """A broker refused a fetch, or closed its connection."""


class Sizes(NamedTuple):
    """Highest number of bytes of a partition, and of a response."""

    partition: int
    response: int


class Link:
    """Blocking connection to a broker, by TLS if ``BENCHMARK_SSL_CAFILE`` is set."""

    def __init__(self, host: str, port: int, partitions: Iterable[int] = ()) -> None:
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (ca := cafile()) is not None:
            context = ssl.create_default_context(cafile=ca)
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.partitions = deque(partitions)

    @classmethod
    def to(cls, bootstrap_servers: str) -> Link:
        """Return a connection to the first of the servers."""
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        return cls(host, int(port))

    def ask(self, request: Request[R], version: int) -> R:
        """Send a request and return its response."""
        from kohort.protocol import decode_response, encode_request

        self.socket.sendall(b"".join(encode_request(request, version, 0, CLIENT.decode())))
        frame = self.fill(memoryview(bytearray(self.size())))
        return decode_response(cast("type[R]", request.response), version, frame)[1]

    def size(self) -> int:
        """Receive the size of the next response."""
        size: int = struct.unpack(">i", self.fill(memoryview(bytearray(4))))[0]
        return size

    def fill(self, view: memoryview) -> memoryview:
        """Receive as many bytes as the view has."""
        have, size = 0, len(view)
        while have < size:
            got = self.socket.recv_into(view[have:])
            if not got:
                raise FetchError("a broker closed its connection")
            have += got
        return view

    def close(self) -> None:
        self.socket.close()


class RawFetches:
    """All partitions of a topic from offset 0 to their high watermarks.

    Each leader has one fetch in flight. The responses of several leaders are received in turn.
    """

    def __init__(self, bootstrap_servers: str, topic: str, sizes: Sizes, take: Take) -> None:
        self._topic = topic.encode()
        self._sizes = sizes
        self._take = take
        leaders = _leaders(bootstrap_servers, topic)
        self._offsets = {p: 0 for partitions in leaders.values() for p in partitions}
        self._links = deque(Link(*address, parts) for address, parts in leaders.items())
        self.responses = 0
        for link in self._links:
            self._send(link)

    @property
    def done(self) -> bool:
        """True if all partitions were read to their high watermarks."""
        return not self._links

    def new_buffer(self) -> memoryview:
        """Return memory for a response, unless a single batch is larger."""
        return _memory(self._sizes.response + self._sizes.partition + HEADROOM)

    def receive(self, buffer: memoryview) -> memoryview:
        """Receive one response, pass its batches to ``take`` and send the next fetch.

        Return the memory of the response, which is new if ``buffer`` was too small.
        """
        link = self._links[0]
        size = link.size()
        if size > len(buffer):
            buffer = _memory(size)
        frame = link.fill(buffer[:size])
        self.responses += 1
        finished = self._parse(link, frame)
        for partition in finished:
            link.partitions.remove(partition)
        if link.partitions:
            self._send(link)
            self._links.rotate(-1)
        else:
            self._links.popleft().close()
        return buffer

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()
        self._links.clear()

    def _send(self, link: Link) -> None:
        asked = b"".join(
            _ASKED.pack(partition, self._offsets[partition], self._sizes.partition)
            for partition in link.partitions
        )
        count = struct.pack(">i", len(link.partitions))
        rest = self._topic + count + asked
        head = _REQUEST.pack(
            _REQUEST.size - 4 + len(rest),
            FETCH,
            FETCH_VERSION,
            self.responses,
            len(CLIENT),
            CLIENT,
            -1,
            MAX_WAIT_MS,
            MIN_BYTES,
            self._sizes.response,
            0,
            1,
            len(self._topic),
        )
        link.socket.sendall(head + rest)

    def _parse(self, link: Link, frame: memoryview) -> list[int]:
        """Pass on all batches and return the partitions that are read to their end."""
        topics, name_size = struct.unpack_from(">ih", frame, 8)
        pos = 14 + max(0, name_size)
        (count,) = struct.unpack_from(">i", frame, pos) if topics else (0,)
        pos += 4
        finished: list[int] = []
        for _ in range(count):
            partition, error, high_watermark, _, aborted = _FOUND.unpack_from(frame, pos)
            if error:
                raise FetchError(f"fetch of partition {partition} failed: error code {error}")
            pos += _FOUND.size + _ABORTED * max(0, aborted)
            (size,) = struct.unpack_from(">i", frame, pos)
            pos += 4
            if size > 0:
                offset = self._take(partition, self._offsets[partition], frame[pos : pos + size])
                self._offsets[partition] = offset
                pos += size
                # A broker fills its response in the order of the request, so other partitions come
                # first now.
                link.partitions.remove(partition)
                link.partitions.append(partition)
            if self._offsets[partition] >= high_watermark:
                finished.append(partition)
        return finished


@contextmanager
def raw_fetches(
    bootstrap_servers: str, topic: str, sizes: Sizes, take: Take
) -> Iterator[RawFetches]:
    """Open the connections for a ``with`` block."""
    fetches = RawFetches(bootstrap_servers, topic, sizes, take)
    try:
        yield fetches
    finally:
        fetches.close()


def walk(records: memoryview, offset: int) -> tuple[int, int]:
    """Return the offset after the last whole batch and the bytes of whole batches, from lengths."""
    pos, end = 0, len(records)
    while pos + _BATCH_HEAD <= end:
        base, size, last = _BATCH.unpack_from(records, pos)
        if pos + 12 + size > end:
            break
        pos += 12 + size
        offset = base + last + 1
    return offset, pos


def _memory(size: int) -> memoryview:
    """Return pages that the kernel provides on first use, so that unused ones cost nothing."""
    return memoryview(mmap.mmap(-1, size))


def _leaders(bootstrap_servers: str, topic: str) -> dict[tuple[str, int], list[int]]:
    """Return the partitions of each leader by its address."""
    from kohort.protocol.messages import MetadataRequest

    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    with closing(Link.to(bootstrap_servers)) as link:
        found = link.ask(asked, METADATA_VERSION)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
    leaders: dict[tuple[str, int], list[int]] = {}
    for partition in found.topics[0].partitions:
        if partition.leader_id not in addresses:
            raise FetchError(f"{topic}-{partition.partition_index} has no leader")
        leaders.setdefault(addresses[partition.leader_id], []).append(partition.partition_index)
    return leaders
