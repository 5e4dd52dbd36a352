"""Fetch sessions of a broker: the cost of a fetch, the ends of watches, and full walks."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio
import pytest
import trio.testing

from kohort.broker import _fetch_sessions
from kohort.broker.apis import Context
from kohort.broker.apis.fetch import fetch
from kohort.broker.cluster._broker import Broker
from kohort.broker.cluster._topics import Partition
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.records import NewRecord, RecordBatch, encode_batch
from kohort.testing import MemoryCluster
from tests.broker.fetch_messages import data, request
from tests.support.virtual import run_virtual

SECOND = 1000


@contextmanager
def traced(function: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)


class Client:
    """A client with a fetch session on broker 1, whose requests go to the handler directly."""

    def __init__(self, cluster: MemoryCluster, topic: str = "t") -> None:
        assert cluster._server is not None
        self.server = cluster._server
        self.topic = topic
        self.isolation = 0
        self.session = (0, 0)

    @property
    def broker(self) -> Broker:
        return self.server.brokers[1]

    @property
    def partitions(self) -> list[Partition]:
        topic = self.server.state.topics.get(self.topic)
        assert topic is not None
        return topic.partitions

    async def fetch(self, *partitions: tuple[int, int], **options: Any) -> FetchResponse:
        options.setdefault("isolation", self.isolation)
        sent = request(*partitions, topic=self.topic, session=self.session, **options)
        return await self.send(sent)

    async def send(self, sent: FetchRequest) -> FetchResponse:
        response = await fetch(Context(self.broker, 12, "c", "/127.0.0.1"), sent)
        assert isinstance(response, FetchResponse)
        self.session = response.session_id, sent.session_epoch + 1
        return response

    def watchers(self) -> int:
        return sum(len(partition.log.watchers) for partition in self.partitions)


def append_in_transaction(partition: Partition) -> None:
    """Append a record of a transaction that stays open."""
    batch = encode_batch([NewRecord(1000, None, b"x")], producer_id=7, transactional=True)
    partition.log.append_coordinated(RecordBatch.of(batch), partition.leader_epoch)


async def quiet_client(cluster: MemoryCluster, partitions: int, isolation: int = 0) -> Client:
    """Return a client whose session has all partitions, without records to read."""
    client = Client(cluster)
    client.isolation = isolation
    await client.fetch(*((number, 0) for number in range(partitions)))
    return client


async def lines_of(function: Callable[[], Awaitable[object]]) -> int:
    """Return the number of lines that the broker's code executes until the function returns."""
    lines = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if not frame.f_globals.get("__name__", "").startswith("kohort.broker."):
            return None
        lines += event == "line"
        return count

    with traced(count):
        await function()
    return lines


async def fetch_without_news(client: Client, cluster: MemoryCluster) -> None:
    assert not data(await client.fetch(max_wait_ms=SECOND))


async def fetch_of_one_record(client: Client, cluster: MemoryCluster) -> None:
    cluster.produce("t", ["x"], partition=2)
    assert list(data(await client.fetch(max_wait_ms=SECOND))) == [2]


async def fetch_that_waits_for_one_record(client: Client, cluster: MemoryCluster) -> None:
    async with anyio.create_task_group() as tasks:

        async def receive() -> None:
            assert list(data(await client.fetch(max_wait_ms=SECOND))) == [2]

        tasks.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        cluster.produce("t", ["x"], partition=2)


@pytest.mark.parametrize("has_transactions", [False, True])
@pytest.mark.parametrize(
    "outcome", [fetch_without_news, fetch_of_one_record, fetch_that_waits_for_one_record]
)
def test_fetch_costs_the_same_in_a_large_session(
    outcome: Callable[[Client, MemoryCluster], Awaitable[None]], has_transactions: bool
) -> None:
    async def lines(partitions: int) -> int:
        async with MemoryCluster(topics={"t": partitions}) as cluster:
            if has_transactions:
                for partition in Client(cluster).partitions:
                    append_in_transaction(partition)
            client = await quiet_client(cluster, partitions, isolation=int(has_transactions))
            return await lines_of(lambda: outcome(client, cluster))

    small, large = (run_virtual(lines, partitions) for partitions in (4, 400))
    assert small == large


@pytest.mark.parametrize("ends", ["by epoch", "by forgetting", "by eviction", "by kill"])
def test_watches_end_with_the_session(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 4}) as cluster:
            monkeypatch.setattr(_fetch_sessions, "MAX_SESSIONS", 1)
            for partition in range(4):
                cluster.move_leader("t", partition, 1)
            client = await quiet_client(cluster, 4)
            assert client.watchers() == 4
            if ends == "by epoch":
                client.session = (client.session[0], -1)
                await client.fetch()
            elif ends == "by forgetting":
                await client.fetch(forgotten=(0, 1))
                assert client.watchers() == 2
                await client.fetch(forgotten=(2, 3))
            elif ends == "by eviction":
                await Client(cluster).fetch()
            else:
                cluster.kill_broker(1)
            assert client.watchers() == 0

    run_virtual(main)


def test_watches_end_with_a_fetch_without_session() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            client = Client(cluster)
            for seconds in (0.5, 5):
                client.session = (0, -1)
                with anyio.move_on_after(seconds):
                    await client.fetch((0, 0), max_wait_ms=SECOND)
                assert client.watchers() == 0

    run_virtual(main)


def test_watch_ends_with_the_first_record_in_an_unused_session() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            client = await quiet_client(cluster, 2)
            cluster.produce("t", ["x"], partition=0)
            assert client.watchers() == 1
            assert list(data(await client.fetch())) == [0]

    run_virtual(main)


def test_waiting_fetch_responds_after_its_session_was_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_fetch_sessions, "MAX_SESSIONS", 1)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster, anyio.create_task_group() as tasks:
            client = await quiet_client(cluster, 2)

            async def receive() -> None:
                assert list(data(await client.fetch(max_wait_ms=SECOND))) == [1]

            tasks.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await Client(cluster).fetch()
            cluster.produce("t", ["x"], partition=1)
            await trio.testing.wait_all_tasks_blocked()
            assert client.watchers() == 0

    run_virtual(main)


def test_two_waiting_fetches_of_one_session_both_respond() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster, anyio.create_task_group() as tasks:
            client = await quiet_client(cluster, 2)
            received: list[list[int]] = []

            async def receive(session: tuple[int, int]) -> None:
                sent = request(max_wait_ms=SECOND, session=session)
                received.append(list(data(await client.send(sent))))

            session_id, epoch = client.session
            for later in range(2):
                tasks.start_soon(receive, (session_id, epoch + later))
                await trio.testing.wait_all_tasks_blocked()
            cluster.produce("t", ["x"], partition=1)
            await trio.testing.wait_all_tasks_blocked()
            assert received == [[1], [1]]

    run_virtual(main)


def test_older_fetch_keeps_partitions_pending_for_latest_view() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster, anyio.create_task_group() as tasks:
            client = Client(cluster)
            [partition] = client.partitions
            append_in_transaction(partition)
            await client.fetch((0, 0), isolation=1)
            session_id, epoch = client.session
            sent = request(max_wait_ms=SECOND, isolation=1, session=client.session)
            tasks.start_soon(client.send, sent)
            await trio.testing.wait_all_tasks_blocked()
            for later in (1, 2):
                client.session = session_id, epoch + later
                [found] = data(await client.fetch(isolation=0)).values()
                assert found.records
                await anyio.sleep(2)

    run_virtual(main)
