"""Work of brokers in benchmarks/cluster.py. Each function works with any broker."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar, cast

from confluent_kafka import Producer

from benchmarks._raw import Link, Sizes, raw_fetches, walk
from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

R = TypeVar("R", bound=Response)

HEARTBEAT_S = 0.1
READY_S = 60.0
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 27, 79


def fetch_all(servers: str, topic: str, limit: int) -> float:
    """Return MB/s of reading all, with one fetch in flight. The batches are not decoded."""
    size = 0

    def take(_: int, offset: int, data: memoryview) -> int:
        nonlocal size
        after, whole = walk(data, offset)
        size += whole
        return after

    with raw_fetches(servers, topic, Sizes(limit, limit), take) as fetches:
        buffer = fetches.new_buffer()
        start = time.perf_counter()
        while not fetches.done:
            buffer = fetches.receive(buffer)
        return size / (time.perf_counter() - start) / 1e6


def produce(servers: str, topic: str, records: int) -> float:
    """Return records/s of confluent-kafka until all are acknowledged.

    Records have 100 bytes each, and linger is 20 ms.
    """
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    producer.list_topics(topic, timeout=READY_S)
    value = bytes(100)
    start = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(READY_S * 5)
    took = time.perf_counter() - start
    assert not left and not failed, (left, failed[:1])
    return records / took


def await_coordinator(servers: str, group: str) -> None:
    """Return when the coordinator of a group responds to its members."""
    find = FindCoordinatorRequest(coordinator_keys=[group])
    stranger = HeartbeatRequest(group_id=group, generation_id=0, member_id="stranger")
    deadline = time.monotonic() + READY_S
    with closing(Link.to(servers)) as link:
        while (
            link.ask(find, 4).coordinators[0].error_code
            or link.ask(stranger, 4).error_code != UNKNOWN_MEMBER_ID
        ):
            assert time.monotonic() < deadline, f"{group} has no coordinator"
            time.sleep(0.05)


def join_all(servers: str, group: str, members: int) -> float:
    """Return the seconds until ``members`` members are synced in one generation.

    All of them start at the same time.
    """
    return asyncio.run(_join_all(servers, group, members))


async def _join_all(servers: str, group: str, members: int) -> float:
    generations: dict[int, int] = {}
    complete = asyncio.Event()

    def synced(number: int, generation: int) -> None:
        generations[number] = generation
        if len(generations) == members and len(set(generations.values())) == 1:
            complete.set()

    start = time.perf_counter()
    async with asyncio.timeout(READY_S), asyncio.TaskGroup() as tasks:
        for number in range(members):
            tasks.create_task(_Member(servers, group).live(number, synced, complete))
        await complete.wait()
        took = time.perf_counter() - start
    return took


class _Member:
    """Member that sends what every client sends. Its heartbeats come every 100 ms."""

    def __init__(self, servers: str, group: str) -> None:
        host, _, port = servers.rpartition(":")
        self._address = host, int(port)
        self._group = group
        self._id = ""

    async def live(
        self, number: int, synced: Callable[[int, int], None], complete: asyncio.Event
    ) -> None:
        """Run until ``complete`` is set, and report each generation to ``synced``
        after SyncGroup.
        """
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        try:
            while not complete.is_set():
                generation = await self._join()
                if generation is None:
                    continue
                synced(number, generation)
                while not await self._must_rejoin(generation):
                    try:
                        await asyncio.wait_for(complete.wait(), HEARTBEAT_S)
                        return
                    except TimeoutError:
                        continue
        finally:
            self._writer.close()

    async def _join(self) -> int | None:
        """Return the generation after SyncGroup. None means that it has to join again."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(40))
        joined = await self._ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=self._id,
                protocol_type="bench",
                protocols=[protocol],
            ),
            9,
        )
        self._id = joined.member_id
        if joined.error_code == MEMBER_ID_REQUIRED:
            return None
        assert joined.error_code == 0, joined
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=bytes(40)
            )
            for member in joined.members
        ]
        answer = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._id,
                protocol_type="bench",
                protocol_name="range",
                assignments=given,
            ),
            5,
        )
        assert answer.error_code in (0, REBALANCE_IN_PROGRESS), answer
        return None if answer.error_code else joined.generation_id

    async def _must_rejoin(self, generation: int) -> bool:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=generation, member_id=self._id
        )
        answer = await self._ask(request, 4)
        assert answer.error_code in (0, REBALANCE_IN_PROGRESS), answer
        return bool(answer.error_code)

    async def _ask(self, request: Request[R], version: int) -> R:
        self._writer.writelines(encode_request(request, version, 1, "bench"))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        return decode_response(cast("type[R]", request.response), version, frame)[1]
