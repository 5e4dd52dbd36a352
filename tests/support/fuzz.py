"""Mutated requests against the in-process cluster, by seed.

    python -m tests.support.fuzz [--requests 1000000] [--seconds 1500] [--seed 0] [--first 0]

The requests are those that real clients sent to Apache Kafka, some of them written in another
version. Most have an error. A cluster lives for 500 of them, in memory and on a virtual clock, so
that no request takes real time to wait. The rules are:

* Each request gets a response that decodes, or its connection ends.
* Nothing fails inside the broker.
* No request takes long.
* No request takes more memory than its frame may. This is measured in one life of four, because
  measuring is slow.
* Each cluster serves a good client in the end.

A failure prints the command that repeats that one life.
"""

from __future__ import annotations

import argparse
import base64
import faulthandler
import json
import logging
import multiprocessing
import os
import random
import struct
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import anyio
import trio
from trio.testing import MockClock

from kohort.broker.apis import SERVED
from kohort.broker.network._server_connection import ServerConnection
from kohort.errors import MessageDecodeError, MessageEncodeError
from kohort.protocol import (
    APIS,
    Request,
    Response,
    Struct,
    decode_request,
    decode_response,
    encode_request,
)
from kohort.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
)
from kohort.records import NewRecord, encode_batch
from kohort.testing import MemoryCluster
from tests.support.mutation import mutate

FRAMES = Path(__file__).parents[1] / "data" / "wire_frames.json"
LIFE = 500
"""Number of requests that one cluster gets."""
LARGEST_FRAME = 1 << 20
ALLOWED_BYTES = 64 << 20
"""Memory that a request may take. A request of one frame may create a topic of 10,000 partitions.
"""
LONGEST_S = 10.0
"""Seconds of CPU time, because the machine may have other things to do."""
PARKED_S = 40 * 24 * 3600.0
"""Seconds of virtual time. No timeout that fits into 32 bits of milliseconds is longer."""
HUNG_S = 300.0
"""Seconds of real time for one life."""
WIDE_INTEGERS = (0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000)
_HEAD = struct.Struct(">hhi")


R = TypeVar("R", bound=Response)


class FuzzFailure(Exception):
    """A request broke a rule. The message ends with the command that repeats the life."""


@dataclass
class Tally:
    """Results of the requests."""

    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class _Errors(logging.Handler):
    """Log handler that keeps the cluster's internal errors and its latest message."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
        if record.levelno >= logging.ERROR:
            self.found.append(logging.Formatter().format(record))


@cache
def captured_requests() -> tuple[bytes, ...]:
    """Return the requests of APIs that the cluster serves."""
    frames = json.loads(FRAMES.read_text())["frames"]
    return tuple(base64.b64decode(f["req"]) for f in frames if f["key"] in SERVED)


def run(
    requests: int,
    *,
    seed: int = 0,
    first: int = 0,
    step: int = 1,
    seconds: float = float("inf"),
    progress: bool = False,
) -> Tally:
    """Send ``requests`` requests, or as many as there is time for. Raise FuzzFailure at a failure.

    Lives are taken from ``first`` on, each ``step``-th one.
    """
    tally = Tally()
    deadline = time.monotonic() + seconds
    errors = _Errors()
    logger = logging.getLogger("kohort.testing")
    logger.addHandler(errors)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        life = first
        while tally.requests < requests and time.monotonic() < deadline:
            count = min(LIFE, requests - tally.requests)
            replay = f"python -m tests.support.fuzz --seed {seed} --first {life} --requests {count}"
            if progress:
                faulthandler.dump_traceback_later(HUNG_S, exit=True)
                if (life - first) // step % 20 == 0:
                    print(f"{tally.requests:9,} requests; now: {replay}", flush=True)
            try:
                clock = MockClock(autojump_threshold=0)
                trio.run(_life, seed, life, count, tally, errors, clock=clock)
            except Exception as error:
                if errors.found:
                    errors.last = errors.found[0]
                raise FuzzFailure(
                    f"{error!r}\nThe last log is {errors.last}\nagain: {replay}"
                ) from error
            life += step
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(errors)
        if progress:
            faulthandler.cancel_dump_traceback_later()
    return tally


def run_shared(
    requests: int, jobs: int, *, seed: int, first: int, seconds: float, progress: bool = False
) -> Tally:
    """Run as :func:`run` does, with the lives divided between ``jobs`` processes."""
    lives = range(-(-requests // LIFE))
    total = Tally()
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawning) as pool:
        running = [
            pool.submit(
                run,
                sum(min(LIFE, requests - life * LIFE) for life in lives[job::jobs]),
                seed=seed,
                first=first + job,
                step=jobs,
                seconds=seconds,
                progress=progress,
            )
            for job in range(jobs)
        ]
        try:
            for future in as_completed(running):
                tally = future.result()
                total.requests += tally.requests
                total.outcomes += tally.outcomes
        except BaseException:
            for child in multiprocessing.active_children():
                # A failure is reported without waiting for the other processes.
                child.terminate()
            raise
    return total


async def _life(seed: int, life: int, count: int, tally: Tally, errors: _Errors) -> None:
    """Run one cluster from its start to the good client at its end."""
    watch_memory = life % 4 == 0
    rng = random.Random(f"{seed} {life}")
    async with MemoryCluster(
        default_partitions=2,
        topics={"good": 1},
        max_request_bytes=LARGEST_FRAME,
        seed=seed + life,
    ) as cluster:
        peer = _Peer(cluster)
        for _ in range(count):
            frame = mutated_request(rng)
            began = time.thread_time()
            if watch_memory:
                tracemalloc.start()
            try:
                outcome = await peer.exchange(frame, rng)
                peak = tracemalloc.get_traced_memory()[1] if watch_memory else 0
            finally:
                tracemalloc.stop()
            took = time.thread_time() - began
            tally.requests += 1
            tally.outcomes[outcome] += 1
            request = f"{_name(frame)}, {len(frame)} bytes: {frame[:200].hex()}"
            assert not errors.found, f"{request}: the broker failed: {errors.found[0]}"
            assert peak <= ALLOWED_BYTES, f"{request}: it took {peak:,} bytes of memory"
            assert took <= LONGEST_S, f"{request}: it took {took:.1f} s"
        await peer.close()
        await _good_client(cluster, life)
        assert not errors.found, errors.found[0]


def _name(frame: bytes) -> str:
    key = struct.unpack_from(">h", frame)[0] if len(frame) >= 2 else -1
    return APIS[key].name if key in APIS else f"API {key}"


def mutated_request(rng: random.Random) -> bytes:
    """Return a request, most often with an error in it."""
    frame = rng.choice(captured_requests())
    if rng.random() < 0.3:
        frame = _other_version(frame, rng)
    if rng.random() < 0.05:
        return frame
    if rng.random() < 0.4:
        return _strange(frame, rng)
    # The fields that select API and version mostly stay as they are, so that the rest is read.
    return mutate(frame, rng, 0 if rng.random() < 0.05 else _HEAD.size)


def _other_version(frame: bytes, rng: random.Random) -> bytes:
    header, message = decode_request(frame)
    versions = SERVED[header.request_api_key].versions
    version = rng.randint(versions.first, versions.last)
    try:
        parts = encode_request(message, version, header.correlation_id, header.client_id)
    except MessageEncodeError:
        return frame
    return b"".join(parts)[4:]


def _strange(frame: bytes, rng: random.Random) -> bytes:
    """Return the same request, well formed, with unusual values."""
    header, message = decode_request(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _spoil(message, rng)
    version, number = header.request_api_version, header.correlation_id
    try:
        return b"".join(encode_request(message, version, number, header.client_id))[4:]
    except (MessageEncodeError, struct.error):
        return mutate(frame, rng, _HEAD.size)


def _spoil(message: Struct, rng: random.Random) -> None:
    """Put an unusual value into a field of this structure or of one below it."""
    name = rng.choice(message.__slots__ or ("",))
    value = getattr(message, name, None)
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = rng.randrange(len(value))
        if isinstance(value[index], Struct):
            _spoil(value[index], rng)
        else:
            value[index] = _strange_value(value[index], rng)
    elif isinstance(value, list):
        setattr(message, name, rng.choice(([], value[::-1], value[:10] * rng.choice((2, 50)))))
    elif isinstance(value, Struct):
        _spoil(value, rng)
    elif name:
        setattr(message, name, _strange_value(value, rng))


def _strange_value(value: object, rng: random.Random) -> object:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((0, -1, 1, -2, 127, 32767, -32768, *WIDE_INTEGERS, value + 1))
        case str() if rng.random() < 0.02:
            return "x" * 32767  # the longest possible string
        case str():
            return rng.choice(("", "good", "\0", "ä" * 200, "x" * 249, "..", value * 2))
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return rng.choice((b"", bytes(16), data * 2, mutate(data, rng), rng.randbytes(40)))
    return rng.choice((None, "", b"", 0, [], "good"))


class _Peer:
    """Sender over one connection, for as long as that connection lives."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._link: _Link | None = None

    async def exchange(self, frame: bytes, rng: random.Random) -> str:
        """Send a request and return its outcome: "answered", "closed" or "silent"."""
        if self._link is None:
            self._link = await _Link.to(self._cluster)
        prefix = len(frame)
        if rng.random() < 0.01:
            prefix = rng.choice((-1, 0x7FFFFFFF, LARGEST_FRAME + 1, -0x80000000))
        try:
            await self._link.send(struct.pack(">i", prefix) + frame)
            with anyio.move_on_after(PARKED_S):
                answer = await self._link.receive()
                assert prefix == len(frame), f"a frame of {prefix} bytes was answered"
                self._check(frame, answer)
                return "answered"
        except (EOFError, OSError):
            await self.close()
            return "closed"
        await self.close()
        assert frame.startswith(b"\x00\x00"), f"neither an answer to {_name(frame)} nor an end"
        return "silent"  # a Produce request with acks=0

    @staticmethod
    def _check(frame: bytes, answer: bytes) -> None:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        if version not in SERVED[key].versions:
            version = 0  # ApiVersions only
        try:
            answered, _ = decode_response(APIS[key].response, version, answer)
        except MessageDecodeError as error:
            raise AssertionError(f"an answer that does not decode: {answer.hex()}") from error
        assert answered == correlation_id, "an answer to another request"

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None


class _Link:
    """Connection in memory."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    @classmethod
    async def to(cls, cluster: MemoryCluster) -> _Link:
        host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        return cls(await cluster.connect(host, int(port)))

    async def send(self, data: bytes) -> None:
        await self._connection.send([data])

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def ask(self, request: Request[R], version: int) -> R:
        await self.send(b"".join(encode_request(request, version, 7, "good")))
        _, response = decode_response(request.response, version, await self.receive())
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own

    async def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = await self._connection.recv_into(view)
            if not got:
                raise EOFError("the broker closed the connection")
            view = view[got:]
        return bytes(data)

    async def close(self) -> None:
        await self._connection.aclose()


async def _good_client(cluster: MemoryCluster, life: int) -> None:
    """Produce, fetch and join as an ordinary client does."""
    topic, group, value = "good-at-the-end", f"good group {life}", b"a good record"
    cluster.create_topic(topic)
    link = await _Link.to(cluster)
    named = MetadataRequest.MetadataRequestTopic(name=topic)
    metadata = await link.ask(MetadataRequest(topics=[named]), 9)
    assert metadata.topics[0].error_code == 0, metadata
    batch = encode_batch([NewRecord(0, None, value)])
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    to = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    produced = await link.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[to]), 9)
    assert produced.responses[0].partition_responses[0].error_code == 0, produced
    part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    asked = FetchRequest.FetchTopic(topic=topic, partitions=[part])
    fetched = await link.ask(FetchRequest(max_wait_ms=10, max_bytes=1000, topics=[asked]), 11)
    assert value in bytes(fetched.responses[0].partitions[0].records or b""), fetched
    found = await link.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    assert found.coordinators[0].error_code == 0, found
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    join.member_id = (await link.ask(join, 9)).member_id
    joined = await link.ask(join, 9)
    assert joined.error_code == 0, joined
    await link.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, which is 1 if a request broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1500.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--first", type=int, default=0, help=f"number of the first life, which has {LIFE} requests"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    args = parser.parse_args(arguments)
    jobs = max(1, min(args.jobs, -(-args.requests // LIFE)))
    began = time.monotonic()
    try:
        tally = run_shared(
            args.requests,
            jobs,
            seed=args.seed,
            first=args.first,
            seconds=args.seconds,
            progress=True,
        )
    except FuzzFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(tally.outcomes.items()))
    took = time.monotonic() - began
    print(f"{tally.requests:,} requests in {took:.0f} s, no failures: {outcomes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
