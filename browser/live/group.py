"""A cluster and the members of a group in one event loop, for a page to start and kill."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from string import ascii_uppercase
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from browser.live.drawing import Group, Mark, Window, timeline
from browser.live.history import GroupHistory
from kohort import AsyncKafkaConsumer, ConsumerRecord, TopicPartition
from kohort.errors import KafkaError
from kohort.network import ByteConnection, Connect
from kohort.testing import MemoryCluster

TOPIC: Final = "orders"
PARTITIONS: Final = 6
GROUP: Final = "billing"
OFFSETS: Final = "__consumer_offsets"
SESSION_MS: Final = 3_000
"""Time after which the coordinator removes a member that was killed. Kafka's default is 45 s."""
HEARTBEAT_MS: Final = 300
SHOWN_MS: Final = 60_000
"""Length of the timeline."""
_log = logging.getLogger("live")
MEMBERS_MOST: Final = len(ascii_uppercase)

Received = ConsumerRecord[bytes, bytes]


async def read_orders(
    name: str,
    servers: str,
    connect: Connect,
    handle: Callable[[str, ConsumerRecord[bytes, bytes]], None],
) -> None:
    """Read as a member of the group until cancelled. It is the program of each member."""
    async with AsyncKafkaConsumer(
        TOPIC,
        bootstrap_servers=servers,
        connect=connect,
        group_id=GROUP,
        client_id=name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=500,
    ) as consumer:
        while True:
            for records in (await consumer.poll(timeout_ms=500)).values():
                for record in records:
                    handle(name, record)


class Cable:
    """The connections of one member, which can be cut as by the end of its process."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: list[ByteConnection] = []
        self._is_cut = False

    async def connect(self, host: str, port: int) -> ByteConnection:
        """Connect to a broker. It is a connect hook."""
        if self._is_cut:
            raise ConnectionRefusedError("this member was killed")
        self._open.append(await self._connect(host, port))
        return self._open[-1]

    async def cut(self) -> None:
        """Close all connections and open no more."""
        self._is_cut = True
        for connection in self._open:
            await connection.aclose()


@dataclass
class LiveMember:
    """One member. ``state`` is "running", "closed", "killed", or "failed: " and the reason."""

    name: str
    cable: Cable
    state: str = "running"
    read: Counter[int] = field(default_factory=Counter)
    """Partition -> number of records read."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class LiveGroup:
    """The cluster with its group. ``run()`` is its life, and the other methods need it."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self._members: dict[str, LiveMember] = {}
        self._written: Counter[int] = Counter()
        self._marks: list[Mark] = []
        self._history = GroupHistory(GROUP)
        self._cluster = MemoryCluster(
            topics={TOPIC: PARTITIONS},
            consumer_session_timeout_ms=SESSION_MS,
            consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            consumer_assignment_interval_ms=0,
        )
        self._tasks: TaskGroup | None = None
        self._zero_ms = 0

    async def run(self) -> None:
        """Run the cluster until cancelled."""
        async with self._cluster:
            self._zero_ms = self._now_ms()
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._follow_history)
                self.started.set()

    def produce(self, count: int) -> None:
        """Append records to the partitions in turn."""
        total = self._written.total()
        values = [f"order {total + number}" for number in range(count)]
        for produced in self._cluster.produce(TOPIC, values):
            self._written[produced.partition] += 1

    def add_member(self) -> str:
        """Start a member and return its name. Raises ValueError if the names are used up."""
        if len(self._members) == MEMBERS_MOST:
            raise ValueError("every letter has named a member. Reload the page to start again")
        assert self._tasks is not None
        name = ascii_uppercase[len(self._members)]
        member = self._members[name] = LiveMember(name, Cable(self._cluster.connect))
        _log.info("%s starts", name)
        self._tasks.start_soon(self._run_member, member)
        return name

    async def kill(self, name: str) -> None:
        """End a member like a killed process. It commits nothing and does not leave."""
        member = self._running(name)
        member.state = "killed"
        self._mark(f"{name} killed")
        await member.cable.cut()
        member.scope.cancel()

    def close(self, name: str) -> None:
        """Let a member commit, leave the group, and end."""
        member = self._running(name)
        member.state = "closed"
        self._mark(f"{name} closes")
        member.scope.cancel()

    def state(self) -> dict[str, Any]:
        """Return what a page shows, as values of JSON."""
        owners = self._history.owners()
        committed = self._cluster.committed(GROUP)
        partitions = []
        for number in range(PARTITIONS):
            offset = committed.get(TopicPartition(TOPIC, number))
            read = {m.name: m.read[number] for m in self._members.values() if m.read[number]}
            partitions.append(
                {
                    "number": number,
                    "owner": owners.get(number, ""),
                    "written": self._written[number],
                    "committed": 0 if offset is None else offset.offset,
                    "read": read,
                }
            )
        members = [
            {
                "name": member.name,
                "state": member.state,
                "partitions": sorted(n for n, owner in owners.items() if owner == member.name),
                "read": member.read.total(),
            }
            for member in self._members.values()
        ]
        seconds = (self._now_ms() - self._zero_ms) / 1000
        return {"seconds": seconds, "partitions": partitions, "members": members}

    def drawing(self, width: int) -> str:
        """Return the timeline of the last minute as SVG, ``width`` pixels wide."""
        now = self._now_ms()
        window = Window(max(self._zero_ms, now - SHOWN_MS), now, width)
        spans, names = self._history.spans, list(self._members)
        return timeline(Group(spans, self._marks, names, PARTITIONS, self._zero_ms), window)

    def _running(self, name: str) -> LiveMember:
        member = self._members.get(name)
        if member is None or member.state != "running":
            raise ValueError(f"member {name} does not run. Add another member")
        return member

    def _mark(self, text: str) -> None:
        self._marks.append(Mark(self._now_ms(), text))
        _log.info("%s", text)

    def _now_ms(self) -> int:
        return round(1000 * self._cluster.wall_clock())

    async def _run_member(self, member: LiveMember) -> None:
        servers = self._cluster.bootstrap_servers
        try:
            with member.scope:
                await read_orders(member.name, servers, member.cable.connect, self._handle)
        except KafkaError as error:
            if member.state == "running":
                member.state = f"failed: {error}"

    def _handle(self, name: str, record: Received) -> None:
        self._members[name].read[record.partition] += 1

    async def _follow_history(self) -> None:
        """Read the records of groups, with a consumer without a group."""
        # The first member creates their topic.
        await self._cluster.wait_until(lambda: self._cluster.group(GROUP).members, timeout=inf)
        async with AsyncKafkaConsumer(
            bootstrap_servers=self._cluster.bootstrap_servers,
            connect=self._cluster.connect,
            client_id="history",
            auto_offset_reset="earliest",
        ) as consumer:
            numbers = await consumer.partitions_for_topic(OFFSETS)
            consumer.assign([TopicPartition(OFFSETS, number) for number in numbers or ()])
            while True:
                for records in (await consumer.poll(timeout_ms=500)).values():
                    for record in records:
                        self._history.add(record)
