"""Rate of receiving fetch responses: kohort's transport compared with a raw blocking socket.

    python -m benchmarks.receive [--rounds 7] [--megabytes 10] [--answers 40]

A separate process responds to every fetch with the same records. The ways to receive take turns
within each round, so that load on the machine affects all. The median counts. The raw socket
receives into one buffer and parses nothing, which is the ceiling. kohort also parses the
response and pools its buffers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable, Collection
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import anyio

from benchmarks._rounds import turns
from kohort.config import ClientConfig
from kohort.protocol import APIS, encode_request, encode_response
from kohort.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
)
from kohort.transport import (
    BrokerConnection,
    ByteConnection,
    Connect,
    StreamConnection,
    TcpConnector,
)

VERSION = 12
HOST = "127.0.0.1"
RAW, OURS = "blocking socket", "kohort, asyncio"
HEADERS = 1 << 16
"""Room for all of a response that is not records."""


class Figures(NamedTuple):
    """Result of one way to receive in one round."""

    megabytes_per_s: float
    cpu_s_per_gb: float


def serve(ready: Connection, size: int) -> None:
    """Respond to connections one after the other, forever."""
    records = bytes(size)
    partition = FetchResponse.PartitionData(records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    frame = bytearray(b"".join(encode_response(FetchResponse(responses=[topic]), VERSION, 0)))
    versions = ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.versions.first, max_version=api.versions.last
            )
            for api in APIS.values()
        ]
    )
    with socket.create_server((HOST, 0)) as server:
        ready.send(server.getsockname()[1])
        while True:
            peer, _ = server.accept()
            with peer, peer.makefile("rb") as stream:
                while head := stream.read(4):
                    request = stream.read(struct.unpack(">i", head)[0])
                    key, version, correlation_id = struct.unpack_from(">hhi", request)
                    if key == FetchRequest.api_key:
                        struct.pack_into(">i", frame, 4, correlation_id)
                        peer.sendall(frame)
                    else:
                        peer.sendall(b"".join(encode_response(versions, version, correlation_id)))


def raw(buffer: memoryview, port: int, answers: int) -> int:
    """Receive with a blocking socket, always into the same buffer. Return the number of bytes."""
    received = 0
    with socket.create_connection((HOST, port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for correlation_id in range(answers):
            for part in encode_request(FetchRequest(), VERSION, correlation_id, "raw"):
                link.sendall(part)
            have, size = 0, 4
            while have < size:
                have += link.recv_into(buffer[have:])
                if size == 4 and have >= 4:
                    size += struct.unpack_from(">i", buffer)[0]
            received += size
    return received


async def ours(connect: Connect, port: int, answers: int) -> int:
    """Receive with a BrokerConnection and return the bytes of records."""
    received = 0
    async with anyio.create_task_group() as tasks:
        connection = await BrokerConnection.open(connect, HOST, port)
        tasks.start_soon(connection.run)
        for _ in range(answers):
            leased = await connection.request_leased(FetchRequest(), max_version=VERSION)
            received += len(leased.response.responses[0].partitions[0].records or b"")
            leased.release()
        await connection.aclose()
    return received


async def connect_stream(host: str, port: int) -> ByteConnection:
    """Open anyio's own TCP stream, wrapped as TLS would be."""
    return StreamConnection(await anyio.connect_tcp(host, port))


def on(backend: str, connect: Connect) -> Callable[[int, int], int]:
    """Return a function that receives with kohort on an event loop."""
    return lambda port, answers: anyio.run(ours, connect, port, answers, backend=backend)


def measure(receive: Callable[[int, int], int], port: int, answers: int) -> Figures:
    """Measure one way once."""
    cpu = _cpu()
    start = time.perf_counter()
    received = receive(port, answers)
    took = time.perf_counter() - start
    return Figures(received / took / 1e6, (_cpu() - cpu) / received * 1e9)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare(
    rounds: int, size: int, answers: int, chosen: Collection[str] = ()
) -> dict[str, list[Figures]]:
    """Return the results of each way with responses of ``size`` bytes, one a round.

    All ways are measured if none is chosen.
    """
    tcp = TcpConnector(ClientConfig())
    ways: dict[str, Callable[[int, int], int]] = {
        RAW: partial(raw, memoryview(bytearray(size + HEADERS))),
        OURS: on("asyncio", tcp),
        "kohort, trio": on("trio", tcp),
        "kohort over anyio's stream, asyncio": on("asyncio", connect_stream),
    }
    ways = {name: way for name, way in ways.items() if not chosen or name in chosen}
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    server = context.Process(target=serve, args=(child, size), daemon=True)
    server.start()
    try:
        port = parent.recv()
        done: dict[str, list[Figures]] = {name: [] for name in ways}
        for number, name in turns(rounds, ways):
            turn = measure(ways[name], port, answers)
            if number:
                done[name].append(turn)
    finally:
        server.terminate()
        server.join()
    return done


def main() -> None:
    """Print a line for each way to receive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--answers", type=int, default=40)
    args = parser.parse_args()
    done = compare(args.rounds, int(args.megabytes * 1e6), args.answers)
    ceiling = statistics.median(turn.megabytes_per_s for turn in done[RAW])
    print(f"responses of {args.megabytes:g} MB, median of {args.rounds} rounds")
    print(f"{'':36}{'MB/s':>8}{'of raw':>8}{'CPU s/GB':>10}")
    for name, results in done.items():
        rate = statistics.median(turn.megabytes_per_s for turn in results)
        cpu = statistics.median(turn.cpu_s_per_gb for turn in results)
        print(f"{name:36}{rate:8.0f}{rate / ceiling:8.2f}{cpu:10.2f}")


if __name__ == "__main__":
    main()
