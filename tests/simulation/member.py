"""Member of the group: kohort's asynchronous consumer with the code of an ordinary user."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRebalanceListener, SubscriptionPattern
from kohort.errors import (
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    SecurityError,
)
from kohort.testing import MemoryCluster
from kohort.types import TopicPartition
from tests.simulation.events import (
    Assigned,
    Broke,
    CallbackBegan,
    CallbackEnded,
    Committed,
    Crashed,
    Delivered,
    Event,
    EventLog,
    Failed,
    Lost,
    Partitions,
    Processed,
    Revoked,
    Revoking,
    Started,
    Stopped,
    Stopping,
    Subscribed,
    now,
)
from tests.simulation.network import MemberNetwork

GROUP = "g"
SLOTS = ("a", "b", "c", "d")
"""Names of members without the number of their life."""
SESSION = 10.0
MAX_POLL_INTERVAL = 20.0
RECOMMIT = 20.0


class NamingRandom(random.Random):
    """Generator that also decides the ids of members, so that one seed gives one event log."""

    names_members = True


@dataclass(frozen=True, slots=True)
class Habits:
    """Use of the consumer by a member's code."""

    autocommit: bool
    strategy: tuple[str, ...]
    commit_in_listener: bool = False
    most: int = 50
    """Highest number of records in a poll."""
    work: float = 0.2
    """Longest time in seconds to process a batch."""
    listen: float = 0.0
    """Longest time in seconds that a callback takes after its work."""
    wait_ms: int = 4000
    long_poll_ms: int | None = 5000
    """The option fetch_max_wait_ms. None lets long polls without records grow."""
    """Timeout of a poll in ms."""
    partition_bytes: int | None = None
    """Most bytes of a partition in a fetch, if it is not the default."""
    instance_id: str | None = None
    rack: str | None = None
    protocol: str = "classic"
    """Group protocol."""
    assignor: str | None = None
    """Assignor of the brokers that the consumer protocol asks for."""
    pattern: str = ""
    """"client" or "brokers", which evaluate a pattern of topics. "" to subscribe to names."""
    by_hand: Partitions | None = None
    """Partitions that it assigns manually. It commits to the group without being a member."""


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        member = self._member
        async with member.callback():
            member.note(Revoking(partitions=revoked))
            try:
                if member.habits.commit_in_listener:
                    await member.commit()
            finally:  # unsubscribe() cancels the callback after 5 s
                member.note(Revoked(partitions=revoked))

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        async with self._member.callback():
            self._member.note(Assigned(partitions=assigned))

    async def on_partitions_lost(self, lost: Partitions) -> None:
        async with self._member.callback():
            self._member.note(Lost(partitions=lost))


class Member:
    """One life of a member, from start to stop or crash."""

    def __init__(
        self,
        name: str,
        cluster: MemoryCluster,
        log: EventLog,
        habits: Habits,
        topics: frozenset[str],
        rng: random.Random,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare a member. ``options`` are the consumer's options for logins."""
        self.name = name
        self.habits = habits
        self.topics = topics
        self.network = MemberNetwork(cluster, random.Random(rng.random()))
        self.crashed = False
        self.ended = anyio.Event()
        self.block_for = 0.0
        """Seconds for which it blocks the event loop before its next poll."""
        self.rests = anyio.Event()
        """Set when the next rest has begun."""
        self._rest = 0.0
        self._resting: anyio.CancelScope | None = None
        self._unsubscribes = False
        self._must_commit = False
        """True if a rebalance kept processed records from being committed."""
        self._log = log
        self._rng = rng
        self._stop = False
        self._started = False
        self._polling: anyio.CancelScope | None = None
        self._scope = anyio.CancelScope()
        self._next_topics: frozenset[str] | None = None
        self.consumer = AsyncKafkaConsumer(**self._configs(cluster), **(options or {}))
        if habits.by_hand is not None:
            self.consumer.assign(habits.by_hand)
        else:
            self._subscribe_to(topics)

    def _configs(self, cluster: MemoryCluster) -> dict[str, Any]:
        habits = self.habits
        configs: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connect": self.network.connect,
            "rng": NamingRandom(self._rng.random()),
            "group_id": GROUP,
            "client_id": self.name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": habits.autocommit,
            "auto_commit_interval_ms": 3000,
            "max_poll_interval_ms": int(MAX_POLL_INTERVAL * 1000),
            "max_poll_records": habits.most,
            "fetch_max_wait_ms": habits.long_poll_ms,
            "request_timeout_ms": 8000,
            "socket_connection_setup_timeout_ms": 3000,
            "bootstrap_timeout_ms": 600_000,
            "metadata_max_age_ms": 20_000,
            "group_protocol": habits.protocol,
        }
        if habits.protocol != "consumer":
            configs["partition_assignment_strategy"] = habits.strategy
        if habits.protocol == "classic":
            configs["session_timeout_ms"] = int(SESSION * 1000)
            configs["heartbeat_interval_ms"] = 3000
        else:
            configs["consumer_session_timeout_ms"] = int(SESSION * 1000)
            configs["group_remote_assignor"] = habits.assignor
        if habits.rack is not None:
            configs["client_rack"] = habits.rack
        if habits.partition_bytes is not None:
            configs["max_partition_fetch_bytes"] = habits.partition_bytes
        if habits.instance_id is not None:
            configs["group_instance_id"] = habits.instance_id
        if habits.by_hand is not None:
            configs["offsets_recommit_interval_ms"] = int(RECOMMIT * 1000)
        return configs

    @property
    def alive(self) -> bool:
        """True if it runs and is not about to end."""
        return not (self._stop or self.crashed or self.ended.is_set())

    def note(self, event: Event) -> None:
        """Log an event, unless the member has crashed."""
        if not self.crashed:
            self._log.add(replace(event, at=now(), who=self.name))

    # --- what the world does to it --------------------------------------------------------------

    def stop(self, *, interrupt: bool) -> None:
        """Let it leave normally. With ``interrupt`` a poll in progress is cancelled."""
        self._stop = True
        if interrupt:
            self.interrupt()

    async def crash(self, *, buried: bool) -> None:
        """End it without leaving the group. With ``buried`` its connections do not even end."""
        self.note(Crashed())
        self.crashed = True
        if buried:
            self.network.bury()
        else:
            await self.network.kill()
        self._scope.cancel()

    def resubscribe(self, topics: frozenset[str]) -> None:
        """Change its subscription before its next poll."""
        self.topics = self._next_topics = topics
        if self._resting is not None and not self._unsubscribes:
            self._subscribe()

    def rest(self, seconds: float, *, unsubscribe: bool) -> None:
        """Let it not poll for ``seconds`` after a poll that returns nothing."""
        self._rest, self._unsubscribes = seconds, unsubscribe
        self.rests = anyio.Event()

    def interrupt(self) -> None:
        """Cancel a poll in progress. The member continues with the next poll."""
        if self._polling is not None:
            self._polling.cancel()
        if self._resting is not None and self._stop:
            self._resting.cancel()

    def relieve(self) -> None:
        """End all faults of this member."""
        self.network.thaw()
        self.network.complete_handshakes()
        self.network.latency = 0.0
        self.block_for = self._rest = 0.0

    # --- its life -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the member from start to end."""
        habits = self.habits
        commits = "auto" if habits.autocommit else "manual"
        ways = [] if habits.protocol == "classic" else [habits.protocol]
        ways += [] if habits.protocol == "consumer" else habits.strategy
        settings = f"{commits}/{'+'.join(ways)}"
        self.note(Started(topics=self.topics, settings=settings))
        try:
            with self._scope:
                await self._in_its_block()
        except KafkaError as error:
            if isinstance(error, IllegalStateError):
                self.note(Broke(error=f"{error!r} from {error.__cause__!r}"))
            self.note(Failed(call="block", error=type(error).__name__, seconds=0.0))
        except Exception as error:
            self.note(Broke(error=repr(error)))
        finally:
            self.note(Stopped())
            self.ended.set()

    async def _in_its_block(self) -> None:
        if self.habits.by_hand is not None:
            self.note(Assigned(partitions=self.habits.by_hand))
        while not self._stop:
            with self._starting():
                async with self.consumer:
                    self._started = True
                    try:
                        while not self._stop or self._must_commit:
                            await self._poll_and_process()
                    finally:
                        self.note(Stopping())
            if not self._started:
                await anyio.sleep(self._rng.uniform(0.1, 2))

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Continue after a refused start, as a user does who waits for a password."""
        try:
            yield
        except SecurityError as error:
            if self._started:
                raise
            self.note(Failed(call="start", error=type(error).__name__, seconds=0.0))

    async def _poll_and_process(self) -> None:
        if self._next_topics is not None:
            self._subscribe()
        if self.block_for:
            seconds, self.block_for = self.block_for, 0.0
            await anyio.sleep(seconds)
        found = await self._guarded("poll", self._poll)
        if not isinstance(found, dict):
            return
        for tp, records in found.items():
            offsets = tuple(record.offset for record in records)
            values = tuple((record.value or b"").decode() for record in records)
            self.note(Delivered(partition=tp, offsets=offsets, values=values))
        if found:
            await anyio.sleep(self._rng.uniform(0, self.habits.work))
        for tp, records in found.items():
            self.note(Processed(partition=tp, offsets=tuple(record.offset for record in records)))
        if self._must_commit or (found and not self.habits.autocommit):
            await self.commit()
        if self._rest and not found and not self._must_commit:
            await self._take_rest()

    def _subscribe(self) -> None:
        topics, self._next_topics = self.topics, None
        self.note(Subscribed(topics=topics))
        self._subscribe_to(topics)

    def _subscribe_to(self, topics: frozenset[str]) -> None:
        """Subscribe to topics, by their names or by a pattern. Only a pattern may match none."""
        listener = _Listener(self)
        pattern = f"({'|'.join(sorted(topics)) or 'no-topic'})$"
        match self.habits.pattern:
            case "brokers":
                self.consumer.subscribe(pattern=SubscriptionPattern(pattern), listener=listener)
            case "client":
                self.consumer.subscribe(pattern=re.compile(pattern), listener=listener)
            case _:
                self.consumer.subscribe(sorted(topics), listener=listener)

    async def _take_rest(self) -> None:
        """Stop polling for a while, sometimes with unsubscribe() before it and subscribe() after
        it.
        """
        seconds, self._rest = self._rest, 0.0
        self.rests.set()
        with anyio.CancelScope() as self._resting:
            if self._unsubscribes:
                await self.consumer.unsubscribe()
                await anyio.sleep(self._rng.choice((0.0, 0.01, 1.0)))
                self._next_topics = self.topics
                self._unsubscribes = False
                self._subscribe()
            await anyio.sleep(seconds)
        self._resting = None

    @asynccontextmanager
    async def callback(self) -> AsyncIterator[None]:
        """Log the start and the end of a callback, which takes a while."""
        self.note(CallbackBegan())
        try:
            yield
            if self.habits.listen:
                await anyio.sleep(self._rng.uniform(0, self.habits.listen))
        finally:
            self.note(CallbackEnded())

    async def _poll(self) -> dict[TopicPartition, list[Any]]:
        with anyio.CancelScope() as self._polling:
            return await self.consumer.poll(timeout_ms=self.habits.wait_ms)
        return {}

    async def commit(self) -> None:
        """Commit the processed offsets. A failure is logged.

        After a RebalanceInProgressError the next poll is followed by another attempt, as the error
        says.
        """
        began, self._must_commit = now(), False
        if await self._guarded("commit", self.consumer.commit) is not False:
            self.note(Committed(seconds=now() - began))

    async def _guarded(self, call: str, function: Callable[[], Any]) -> Any:
        """Return the call's result. False means an error of kohort's, which is logged."""
        began = now()
        try:
            return await function()
        except IllegalStateError:
            raise  # the core failed, or the consumer reports a wrong use
        except KafkaError as error:
            name = type(error).__name__
            self.note(Failed(call=call, error=name, seconds=now() - began))
            self._must_commit |= call == "commit" and isinstance(error, RebalanceInProgressError)
            # Users who continue immediately are not simulated here.
            await anyio.sleep(0.1)
            return False
