"""A member of a simulated share group, with handlers that do all that handlers may do."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import anyio

from kohort import AsyncShareConsumer, KafkaError, ShareRecord, TopicPartition
from kohort.errors import IllegalStateError, WakeupError
from tests.simulation.network import MemberNetwork

if TYPE_CHECKING:
    from tests.share.simulation import World

POISON = b"poison"
"""The value of a record that each handler releases."""
POLL = 1.0
POLL_SLACK = 3.0
CLOSE = 6.0
"""Seconds of a poll, what it may take longer, and those of a close."""


class Member:
    """One life of a member. ``is_last`` accepts everything but poison at once."""

    def __init__(self, world: World, number: int, *, is_last: bool) -> None:
        plan = world.plan
        self.world = world
        self.rng = rng = random.Random(number)
        self.name = f"m{number}"
        self.is_last = is_last
        self.network = MemberNetwork(world.cluster, random.Random(number))
        self.mode = rng.choice(["explicit", "explicit", "implicit", "iteration"])
        if is_last:
            self.mode = "explicit"
        self.disturbed_until = -math.inf
        self.leaving = False
        self.ended = anyio.Event()
        self.scope = anyio.CancelScope()
        self.running = 0
        self.marked: dict[tuple[TopicPartition, int], ShareRecord[Any, Any]] = {}
        self.concurrency = rng.choice([5, 50])
        self.consumer = AsyncShareConsumer(
            *world.names.values(),
            bootstrap_servers=world.cluster.bootstrap_servers,
            connect=self.network.connect,
            rng=random.Random(number),
            client_id=self.name,
            group_id=world.group,
            acknowledgement="explicit" if self.mode == "explicit" else "implicit",
            acquire_mode=rng.choice(["batch_optimized", "record_limit"]),
            max_poll_records=rng.choice([1, 10, 100]) if not is_last else 100,
            request_timeout_ms=10_000,
            fetch_max_wait_ms=rng.choice([500, 2_000]),
            retry_backoff_ms=50,
        )
        self.longest = 0.0 if is_last else plan.longest * plan.lock

    def __repr__(self) -> str:
        return self.name

    @property
    def id(self) -> str:
        client = self.consumer._client
        return "" if client is None else client.member.id

    async def run(self) -> None:
        """Work until the member leaves, crashes or is cancelled."""
        try:
            with self.scope:
                async with self.consumer:
                    async with anyio.create_task_group() as handlers:
                        self.handlers = handlers
                        await (self.iterate() if self.mode == "iteration" else self.poll_on())
                        handlers.cancel_scope.cancel()
                    await self.close()
        except KafkaError as error:
            self.see_error("start", error)
        self.ended.set()

    async def poll_on(self) -> None:
        rng = self.rng
        while not self.leaving:
            if self.world.is_resting:
                await anyio.sleep(1.0)  # membership needs no polls
                continue
            found = await self.poll()
            for record in (record for records in found.values() for record in records):
                self.world.witness.see_record(self.id, self.name, record)
                if self.mode == "explicit":
                    self.running += 1
                    self.handlers.start_soon(self.handle, record)
                else:
                    await anyio.sleep(self.duration() / 10)
            if not self.is_last and rng.random() < 0.05:
                await anyio.sleep(rng.uniform(0, 1.5) * self.world.plan.lock)  # it rests
            while self.running >= self.concurrency and not self.leaving:  # noqa: ASYNC110
                await anyio.sleep(0.1)
            if self.is_last or rng.random() < 0.4:
                await self.commit()

    async def poll(self) -> dict[TopicPartition, list[ShareRecord[Any, Any]]]:
        begun = anyio.current_time()
        is_first = self.consumer._client is None
        found: dict[TopicPartition, list[ShareRecord[Any, Any]]] = {}
        try:
            found = await self.consumer.poll(timeout_ms=1000 * POLL)
        except WakeupError:
            self.leaving = True
        except KafkaError as error:
            self.see_error("poll", error)
            await anyio.sleep(0.2)
        took = anyio.current_time() - begun
        if took > POLL + POLL_SLACK and not is_first and self.is_calm(begun):
            self.world.witness.violate(13, f"{self} polled for {took:.1f} s")
        return found

    async def iterate(self) -> None:
        """Take records one by one. Sometimes an exception leaves the loop."""
        while not self.leaving:
            try:
                async for record in self.consumer:
                    self.world.witness.see_record(self.id, self.name, record)
                    await anyio.sleep(self.duration() / 10)
                    if self.leaving or self.rng.random() < 0.05:
                        break
            except KafkaError as error:
                if isinstance(error, WakeupError):
                    return
                self.see_error("iteration", error)
                await anyio.sleep(0.2)
            if self.rng.random() < 0.2:
                await self.commit()

    def see_error(self, where: str, error: KafkaError) -> None:
        if self.world.plan.profile == "calm":
            self.world.witness.violate(13, f"{self}: {where} raised {error!r}")

    async def handle(self, record: ShareRecord[Any, Any]) -> None:
        """Process one record of an explicit member, and acknowledge it or not."""
        consumer, rng, plan = self.consumer, self.rng, self.world.plan
        try:
            await anyio.sleep(self.duration())
            doings = ["accept"] * 12 + ["release", "reject", "renew", "renew", "forget", "late"]
            doing = "accept" if self.is_last else rng.choice(doings)
            if record.value == POISON:
                doing = "release"
            if doing == "renew":
                for _ in range(rng.randint(1, 3)):
                    consumer.renew(record)
                    await anyio.sleep(plan.lock * rng.uniform(0.1, 0.6))
                doing = "accept"
            if doing == "late":
                left = record.lock_deadline - anyio.current_time()
                await anyio.sleep(
                    max(0.0, min(left, plan.lock)) + rng.choice([0.0, 0.01, plan.lock])
                )
                doing = "accept"
            match doing:
                case "accept":
                    consumer.accept(record)
                    place = TopicPartition(record.topic, record.partition), record.offset
                    self.marked[place] = record
                case "release":
                    consumer.release(record)
                case "reject":
                    consumer.reject(record)
        except IllegalStateError:
            pass  # it was acknowledged by its time, or the member has closed
        finally:
            self.running -= 1

    def duration(self) -> float:
        return self.rng.uniform(0, self.longest)

    async def commit(self) -> None:
        marked = dict(self.marked)
        try:
            failed = await self.consumer.commit(timeout_ms=5_000)
        except KafkaError as error:
            self.see_error("commit", error)
            return
        for tp, offsets in failed.items():
            for offset in offsets:
                self.marked.pop((tp, offset), None)
        for place, record in marked.items():
            if place in self.marked and self.marked[place] is record:
                del self.marked[place]
                self.world.witness.see_accepted(record)

    async def close(self) -> None:
        begun, id = anyio.current_time(), self.id
        await self.consumer.close()
        took = anyio.current_time() - begun
        if took > CLOSE:
            self.world.witness.violate(13, f"{self} closed for {took:.1f} s")
        if self.is_calm(begun):
            self.world.witness.see_closed(id, self.name)

    def is_calm(self, since: float) -> bool:
        return since > max(self.disturbed_until, self.world.disturbed_until)

    async def leave(self) -> None:
        self.leaving = True
        self.consumer.wakeup()
        await self.ended.wait()

    async def crash(self) -> None:
        self.disturbed_until = math.inf
        await self.network.kill()
        self.scope.cancel()

    async def cut(self, seconds: float) -> None:
        """Lose the network for a while."""
        self.disturbed_until = math.inf
        self.network.freeze()
        await anyio.sleep(seconds)
        self.network.thaw()
        self.disturbed_until = anyio.current_time() + 15
