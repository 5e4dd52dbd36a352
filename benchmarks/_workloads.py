"""Work of brokers in benchmarks/cluster.py. Each function works with any broker at a port."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Callable
from typing import TypeVar, cast

from confluent_kafka import Producer

from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    ProduceRequest,
    ProduceResponse,
    SyncGroupRequest,
)
from kohort.records import NewRecord, encode_batch

R = TypeVar("R", bound=Response)

HOST = "127.0.0.1"
FETCH_VERSION = 11
"""Version that is not flexible: up to the records each field has a fixed place."""
RECORD = 1000
BATCH_RECORDS = 64
PIPELINED = 8
HEARTBEAT_S = 0.1
READY_S = 60.0
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 27, 79


class Link:
    """Blocking connection to a broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=READY_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request[R], version: int) -> None:
        self.socket.sendall(b"".join(encode_request(request, version, 1, "bench")))

    def receive(self, cls: type[R], version: int) -> R:
        return decode_response(cls, version, self._exactly(*struct.unpack(">i", self._exactly(4))))[
            1
        ]

    def ask(self, request: Request[R], version: int) -> R:
        self.send(request, version)
        return self.receive(cast("type[R]", request.response), version)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.socket.recv_into(view)
            if not got:
                raise EOFError("the broker closed the connection")
            view = view[got:]
        return data


def create_topic(port: int, name: str) -> None:
    """Create a topic of one partition and return when it has a leader."""
    link = Link(port)
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = link.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert answer.topics[0].error_code == 0, answer
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])
    deadline = time.monotonic() + READY_S
    while link.ask(ListOffsetsRequest(topics=[asked]), 5).topics[0].partitions[0].error_code:
        assert time.monotonic() < deadline, f"{name} has no leader"
        time.sleep(0.01)


def delete_topic(port: int, name: str) -> None:
    answer = Link(port).ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
    assert answer.responses[0].error_code == 0, answer


def load(port: int, topic: str, size: int) -> tuple[int, int]:
    """Store ``size`` bytes in equal batches. Return the number of batches and the bytes of each."""
    value = random.Random(1).randbytes(RECORD)
    stamp = int(time.time() * 1000)
    batch = encode_batch([NewRecord(stamp, None, value)] * BATCH_RECORDS)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])
    count = -(-size // len(batch))
    link = Link(port)
    for sent in range(count + PIPELINED):
        if sent < count:
            link.send(request, 9)
        if sent >= PIPELINED:
            answer = link.receive(ProduceResponse, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer
    return count, len(batch)


def fetch_all(port: int, topic: str, stored: tuple[int, int], limit: int) -> float:
    """Return MB/s of reading all, with one fetch in flight. The batches are not decoded."""
    count, batch = stored
    name = topic.encode()
    # size, correlation id, throttling, error, session, topics, name, partitions, index, error,
    # three offsets, aborted transactions, preferred replica, length of the records
    length_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4 + 2 + 3 * 8 + 4 + 4
    buffer = memoryview(bytearray(limit + batch + length_at + 4096))
    link = Link(port)
    done = 0
    start = time.perf_counter()
    while done < count:
        part = FetchRequest.FetchPartition(
            partition=0, fetch_offset=done * BATCH_RECORDS, partition_max_bytes=limit
        )
        asked = FetchRequest.FetchTopic(topic=topic, partitions=[part])
        link.send(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[asked]), FETCH_VERSION)
        have, size = 0, 4
        while have < size:
            got = link.socket.recv_into(buffer[have:])
            assert got, "the broker closed the connection"
            have += got
            if size == 4 and have >= 4:
                size += struct.unpack_from(">i", buffer)[0]
        (length,) = struct.unpack_from(">i", buffer, length_at)
        assert 0 <= size - length_at - 4 - length < 8 and length >= batch, (size, length)
        assert buffer[length_at + 4 + 16] == 2, "a batch of format 2 begins there"
        done += length // batch
    return count * batch / (time.perf_counter() - start) / 1e6


def produce(port: int, topic: str, records: int) -> float:
    """Return records/s of confluent-kafka until all are acknowledged.

    Records have 100 bytes each, and linger is 20 ms.
    """
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
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


def join_all(port: int, group: str, members: int) -> float:
    """Return the seconds until ``members`` members are synced in one generation.

    All of them start at the same time.
    """
    return asyncio.run(_join_all(port, group, members))


async def _join_all(port: int, group: str, members: int) -> float:
    link = Link(port)
    find = FindCoordinatorRequest(coordinator_keys=[group])
    stranger = HeartbeatRequest(group_id=group, generation_id=0, member_id="stranger")
    deadline = time.monotonic() + READY_S
    while (
        link.ask(find, 4).coordinators[0].error_code
        or link.ask(stranger, 4).error_code != UNKNOWN_MEMBER_ID
    ):
        assert time.monotonic() < deadline, f"{group} has no coordinator"
        await asyncio.sleep(0.05)
    generations: dict[int, int] = {}
    complete = asyncio.Event()

    def synced(number: int, generation: int) -> None:
        generations[number] = generation
        if len(generations) == members and len(set(generations.values())) == 1:
            complete.set()

    start = time.perf_counter()
    async with asyncio.timeout(READY_S), asyncio.TaskGroup() as tasks:
        for number in range(members):
            tasks.create_task(_Member(port, group).live(number, synced, complete))
        await complete.wait()
        took = time.perf_counter() - start
    return took


class _Member:
    """Member that sends what every client sends. Its heartbeats come every 100 ms."""

    def __init__(self, port: int, group: str) -> None:
        self._port = port
        self._group = group
        self._id = ""

    async def live(
        self, number: int, synced: Callable[[int, int], None], complete: asyncio.Event
    ) -> None:
        """Run until ``complete`` is set, and report each generation to ``synced``
        after SyncGroup.
        """
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
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
