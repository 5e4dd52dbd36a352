"""Random lives of a group whose members run process(), on the virtual clock.

A seed draws the protocol, the order of records, concurrency, window, durations and failures. Some
seeds have records that fail for good or cannot be read, and DeadLetters. Some have SqlOffsets, some
batches, split or with letters for their single records. Then
members come, leave, crash and lose their network for a while. A witness sees every call of a
handler and every commit that a broker accepts, and keeps what must never happen:

1. Two handlers of one key run at a time, unless a member of them was cut off.
2. A handler of a key starts before an earlier record of the key is done.
3. A commit exceeds a record that is not done, or its done set has one.
4. A record starts further than the window from the first one that is not done.
5. A record whose lane is free waits although a slot is free.
6. A record is handled twice in a life without crashes, cuts and handlers longer than the drain.
7. A record is not handled, also after another tool has reset the offsets.
8. A record is committed that has failed and has no letter, or a letter has other bytes.
9. A record has two letters in a life as in 6. One of another member is right if the database
   failed after the first letter, before the offset of the record was stored.
10. A result is missing in the database or is there twice, whatever happens to the members.
11. A record has a result and a letter. A record of a failed batch may have both if the writer of
    the letter was cut off, or the database failed as in 9.
12. More handlers of a member run than ``concurrency``.

Run one seed by ``python -m tests.processing.simulation --seed 7``, many by ``--seeds 1000``.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaError, OffsetAndMetadata, TopicPartition
from kohort.errors import ErrorCode
from kohort.processing import Batch, DeadLetters, Retry, SqlOffsets
from kohort.processing._done_set import decode_done
from kohort.processing._in_tasks import AsyncProcessor
from kohort.processing._options import make_options
from kohort.testing import MemoryCluster
from tests.processing.sinks import DLQ, LetterBox, MemoryDatabase, Place, Row
from tests.simulation.network import MemberNetwork
from tests.support.virtual import run_virtual

PARTITIONS = 3
DRAIN = 5.0
LOOK = 0.5
"""Seconds between two looks for idle lanes."""
PATIENCE = 3
"""Looks after which an idle lane is a violation."""
LIMIT = 900.0
"""Seconds of virtual time in which all records are handled."""

UNREADABLE = b"unreadable"
POISON = b"poison"


Load = ConsumerRecord[bytes, bytes] | list[ConsumerRecord[bytes, bytes]]
"""What a handler gets: a record or a batch."""


def places_of(load: Load) -> list[Place]:
    records = load if isinstance(load, list) else [load]
    return [(record.partition, record.offset) for record in records]


class BoomError(Exception):
    """The failure of a handler."""


class PoisonError(Exception):
    """The failure of a handler whose record has no other attempt."""


def read(value: bytes | None) -> bytes | None:
    """Deserialize a value."""
    if value == UNREADABLE:
        raise ValueError("cannot be read")
    return value


@dataclass
class Plan:
    """What a seed has drawn."""

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        protocols: list[dict[str, Any]] = [
            {"group_protocol": "consumer"},
            {"group_protocol": "classic", "partition_assignment_strategy": ["range"]},
            {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]},
        ]
        self.protocol = rng.choice(protocols)
        self.order = rng.choice(["partition", "key", "key", "key", "none"])
        self.concurrency = rng.choice([1, 2, 5, 20])
        self.window = rng.choice([5, 30, 1000])
        self.keys = rng.choice([2, 7, 40])
        self.records = rng.choice([60, 150, 300])
        self.longest = rng.choice([0.0, 0.1, 0.4])
        self.slow = rng.choice([0.0, 0.0, 0.03])
        """Share of handlers that take longer than the drain."""
        self.failing = rng.choice([0.0, 0.05, 0.2])
        self.crashes = rng.random() < 0.4
        self.resets = rng.random() < 0.3
        self.bad = rng.choice([0.0, 0.0, 0.1, 0.3])
        """Share of records that fail for good. They need dead letters."""
        self.is_stored = rng.random() < 0.5
        if self.is_stored:
            self.order = "partition"
        self.batch: Batch | None = None
        if self.order == "partition" and rng.random() < 0.7:
            self.batch = Batch(rng.choice([2, 5]), rng.choice([0.0, 0.5]), split=rng.random() < 0.5)
            self.bad = self.bad or rng.choice([0.0, 0.1])

    @property
    def is_clean(self) -> bool:
        """True if no record may be handled twice."""
        return not (self.slow or self.crashes)

    def options(self, database: MemoryDatabase) -> Any:
        offsets = SqlOffsets(database.connect, paramstyle="qmark") if self.is_stored else None
        return make_options(
            order=self.order,
            concurrency=self.concurrency,
            window=self.window,
            retry=Retry(None, on=(BoomError, OSError), first=2.0, longest=8.0),
            failed=DeadLetters(DLQ) if self.bad else "stop",
            offsets=offsets,
            drain=DRAIN,
            each_partition=None,
            batch=self.batch,
            delay=0.0,
            commit_interval=self.rng.choice([0.2, 1.0, 5.0]),
            stuck_after=300.0,
            handle_signals=False,
        )


class Witness:
    """What handlers did and what was committed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.violations: list[str] = []
        self.produced: dict[Place, bytes | None] = {}
        """The key of each record."""
        self.values: dict[Place, bytes] = {}
        self.done: set[Place] = set()
        self.ends: Counter[Place] = Counter()
        self.running: dict[Place, Member] = {}
        self.retried: dict[Place, Member] = {}
        """Records whose handler raised, until it is called again."""
        self.condemned: set[Place] = set()
        """Records of whole batches that failed for good. The policy gets each of them."""
        self.buried: set[Place] = set()
        """Records that have a letter."""
        self.unstored: set[Place] = set()
        """Those of them whose offset the database then failed to store."""

    def key_of(self, place: Place) -> Any:
        """Return what decides which records run one after the other; None for nothing."""
        if self.plan.order == "partition":
            return place[0]
        key = None if self.values[place] == UNREADABLE else self.produced[place]
        return None if self.plan.order == "none" or key is None else (place[0], key)

    def violate(self, text: str) -> None:
        self.violations.append(f"{anyio.current_time():.2f} {text}")

    def lowest(self, partition: int) -> int:
        """Return the first offset of a partition that is not done."""
        offsets = sorted(offset for at, offset in self.produced if at == partition)
        return next((n for n in offsets if (partition, n) not in self.done), len(offsets))

    def start(self, member: Member, places: list[Place]) -> None:
        """Check that a handler may start with a record, or with the records of a batch."""
        for place in places:
            self.check_start(member, place, earlier=places[0][1])
        for place in places:
            self.running[place] = member
            self.retried.pop(place, None)

    def check_start(self, member: Member, place: Place, earlier: int) -> None:
        """Check one record. The records of its key before the offset ``earlier`` must be done."""
        key = self.key_of(place)
        for other, owner in self.running.items():
            same = other == place or (key is not None and self.key_of(other) == key)
            if same and not (owner.is_cut or member.is_cut):
                self.violate(f"{member} starts {place} while {owner} handles {other}")
        if key is not None and not member.is_cut:
            for other in self.produced:
                if other[0] == place[0] and other[1] < earlier and other not in self.done:
                    if self.key_of(other) == key:
                        self.violate(f"{member} starts {place} before {other} is done")
        if place[1] - self.lowest(place[0]) >= self.plan.window:
            self.violate(f"{member} starts {place}, beyond the window of {self.plan.window}")

    def finish(self, place: Place) -> None:
        self.done.add(place)
        self.ends[place] += 1

    def see_letter(self, place: Place, letter: ConsumerRecord[bytes, bytes]) -> None:
        """Note that the topic of dead letters has another letter."""
        if (letter.key, letter.value) != (self.produced[place], self.values[place]):
            self.violate(f"the letter of {place} is {letter}")
        if self.values[place] not in (POISON, UNREADABLE) and place not in self.condemned:
            self.violate(f"{place} has a letter and is good")
        self.buried.add(place)
        self.done.add(place)

    def see_response(self, place: Place) -> None:
        """Note that a member knows that a letter is written."""
        self.retried.pop(place, None)

    def see_failed(self, place: Place) -> None:
        """Note that the database has failed to replace the offset of a record."""
        if place in self.buried:
            self.unstored.add(place)

    def see_stored(self, row: Row, begin: int, end: int) -> None:
        """Note that the database has the results between two offsets."""
        if end <= begin:
            self.violate(f"the stored offset of {row} went from {begin} to {end}")
        for place in ((row[2], offset) for offset in range(begin, end)):
            if place in self.buried:
                continue
            if self.values[place] not in (POISON, UNREADABLE):
                self.done.add(place)
            else:
                self.violate(f"the stored offset {end} passes {place}, which has no letter")

    async def see_commit(self, call: Any) -> Any:
        """Check a commit that a broker accepts."""
        response = await call.proceed()
        accepted = {
            (partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }
        for topic in call.message.topics:
            for at in topic.partitions:
                if at.partition_index in accepted and call.client_id != "tool":
                    self.check(at.partition_index, at.committed_offset, at.committed_metadata)
        return None

    def check(self, partition: int, offset: int, metadata: str | None) -> None:
        if offset > self.lowest(partition):
            self.violate(f"commit {offset} of {partition} passes {self.lowest(partition)}")
        for each in decode_done(offset, metadata or ""):
            if (partition, each) in self.produced and (partition, each) not in self.done:
                self.violate(f"the done set of {partition} at {offset} has {each}")


class Member:
    """One life of a member."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"m{number}"
        self.network = MemberNetwork(world.cluster, random.Random(number))
        self.is_cut = False
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.running = 0
        self.consumer = AsyncKafkaConsumer(
            "t",
            bootstrap_servers=world.cluster.bootstrap_servers,
            connect=self.network.connect,
            rng=random.Random(number),
            client_id=self.name,
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=world.rng.choice([3, 50, 500]),
            value_deserializer=read,
            **world.plan.protocol,
        )
        handler = self.store if world.plan.is_stored else self.handle
        options = world.plan.options(world.database)
        self.processor = AsyncProcessor(self.consumer, handler, options)
        self.idle: dict[Place, int] = {}
        """Number of looks at which a record waited for nothing."""

    def __repr__(self) -> str:
        return self.name

    async def run(self) -> None:
        with suppress(KafkaError), self.scope:
            await self.processor.run()
        self.ended.set()

    async def handle(self, load: Load) -> None:
        world, witness = self.world, self.world.witness
        places = places_of(load)
        witness.start(self, places)
        self.running += 1
        if self.running > world.plan.concurrency:
            witness.violate(f"{self} runs {self.running} of {world.plan.concurrency} handlers")
        plan, rng = world.plan, world.rng
        try:
            slow = rng.random() < plan.slow
            await anyio.sleep(
                rng.uniform(DRAIN + 1, DRAIN + 9) if slow else self.duration() * len(places)
            )
            is_bad = any(witness.values[place] == POISON for place in places)
            if is_bad or rng.random() < plan.failing:
                witness.retried.update(dict.fromkeys(places, self))
                if is_bad and plan.batch is not None and not plan.batch.split:
                    witness.condemned.update(places)
                raise PoisonError if is_bad else BoomError
            if not plan.is_stored:
                for place in places:
                    witness.finish(place)
        finally:
            self.running -= 1
            for place in places:
                if witness.running.get(place) is self:
                    del witness.running[place]

    async def store(self, load: Load, cursor: Any) -> None:
        await self.handle(load)
        for place in places_of(load):
            await cursor.execute("INSERT INTO results VALUES (?, ?)", place)

    def duration(self) -> float:
        return self.world.rng.uniform(0, self.world.plan.longest)

    def look(self) -> None:
        """Find records that wait although a slot and their lane are free."""
        witness, core = self.world.witness, self.processor._core
        waiting: dict[Any, Place] = {}
        busy = {witness.key_of(p) for p, owner in witness.running.items() if owner is self}
        busy |= {witness.key_of(p) for p, owner in witness.retried.items() if owner is self}
        # Its handler has returned, and the transaction of its store failed.
        retried = {
            (lane.partition.tp.partition, record.offset)
            for until, number, lane in core._sleeping
            if lane.wake == number and not lane.partition.is_dropped
            if lane.attempt and until > anyio.current_time()
            for record in (lane.load if isinstance(lane.load, list) else [lane.load])
        }
        busy |= {witness.key_of(place) for place in retried}
        unreadable = 0
        for tp, partition in core.partitions.items():
            if partition.is_closed:
                continue
            for offset in sorted(partition.open):
                place = tp.partition, offset
                key = witness.key_of(place)
                if witness.values[place] == UNREADABLE:  # its letter may be on the way, in a slot
                    unreadable += 1
                    busy.add(key)
                    continue
                if key is None and not (
                    place in witness.running or place in witness.retried or place in retried
                ):
                    waiting[place] = place
                elif key is not None and key not in busy:
                    waiting.setdefault(key, place)
        buried = [p for p, owner in witness.retried.items() if witness.values[p] == POISON]
        slots = self.running + len(buried) + unreadable
        free = slots < self.world.plan.concurrency and not self.is_cut
        places = waiting.values() if free else ()
        self.idle = {place: self.idle.get(place, 0) + 1 for place in places}
        for place, looks in self.idle.items():
            if looks == PATIENCE:
                witness.violate(f"{place} waits in {self}, which has a free slot")

    async def leave(self) -> None:
        self.consumer.wakeup()
        await self.ended.wait()

    async def crash(self) -> None:
        self.is_cut = True
        await self.network.kill()
        self.scope.cancel()

    async def cut(self, seconds: float) -> None:
        """Lose the network for a while, so that the session may expire."""
        self.is_cut = True
        self.network.freeze()
        await anyio.sleep(seconds)
        self.network.thaw()


class World:
    """A cluster, its members, and what a seed does with them."""

    def __init__(self, cluster: MemoryCluster, plan: Plan, tasks: Any) -> None:
        self.cluster = cluster
        self.plan = plan
        self.rng = plan.rng
        self.witness = Witness(plan)
        self.letters = LetterBox(cluster, self.rng, 0.2)
        self.letters.on_letter = self.witness.see_letter
        self.letters.on_response = self.witness.see_response
        self.database = MemoryDatabase(self.rng, 0.05)
        self.database.on_stored = self.witness.see_stored
        self.database.on_failed = self.witness.see_failed
        self.members: list[Member] = []
        self._tasks = tasks
        self._made = 0

    def start(self) -> Member:
        self._made += 1
        member = Member(self, 1000 * self.plan.seed + self._made)
        self.members.append(member)
        self._tasks.start_soon(member.run)
        return member

    def live(self) -> list[Member]:
        return [each for each in self.members if not (each.ended.is_set() or each.is_cut)]

    def produce(self, count: int) -> None:
        for _ in range(count):
            partition = self.rng.randrange(PARTITIONS)
            number = self.rng.randrange(self.plan.keys)
            key = None if number == 0 and self.rng.random() < 0.5 else b"k%d" % number
            is_bad = self.rng.random() < self.plan.bad
            value = self.rng.choice([POISON, POISON, UNREADABLE]) if is_bad else b"x"
            (made,) = self.cluster.produce("t", [(key, value)], partition=partition)
            self.witness.produced[partition, made.offset] = key
            self.witness.values[partition, made.offset] = value

    async def live_on(self) -> None:
        plan, rng = self.plan, self.rng
        for _ in range(rng.randint(1, 2)):
            self.start()
        for _ in range(rng.randint(3, 8)):
            await anyio.sleep(rng.uniform(0.1, 6.0))
            self.produce(plan.records // 8)
            live = self.live()
            doings = ["start", "start", "leave", "refuse"]
            doings += ["crash", "cut"] if plan.crashes else []
            doings += ["outage"] if plan.is_stored else []
            match rng.choice(doings):
                case "start" if len(live) < 4:
                    self.start()
                case "leave" if live:
                    await rng.choice(live).leave()
                case "crash" if live:
                    await rng.choice(live).crash()
                case "cut" if live:
                    self._tasks.start_soon(rng.choice(live).cut, rng.uniform(5, 60))
                case "outage":
                    self.database.away_until = anyio.current_time() + rng.uniform(1, 20)
                case "refuse":
                    self.cluster.fail(
                        "OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2
                    )
        await self.settle()
        if plan.resets:
            await self.reset()
            await self.settle()

    async def look(self) -> None:
        while True:
            await anyio.sleep(LOOK)
            for member in self.live():
                # A lane may wait for the transaction of another member, a batch for more records.
                if not self.plan.is_stored and not self.plan.batch:
                    member.look()

    async def settle(self) -> None:
        """Wait until everything is handled, then let all members leave."""
        witness = self.witness
        if not self.live():
            self.start()
        with anyio.move_on_after(LIMIT):
            while len(witness.done) < len(witness.produced):  # noqa: ASYNC110
                await anyio.sleep(0.1)
        missing = sorted(witness.produced.keys() - witness.done)
        if missing:
            witness.violate(f"{len(missing)} records are not handled: {missing[:5]}")
        for member in self.live():
            await member.leave()
        for member in self.members:
            if not member.ended.is_set():
                member.is_cut = True
                member.scope.cancel()
                await member.ended.wait()

    async def reset(self) -> None:
        """Reset the offsets as another tool does, with metadata that is not kohort's."""
        witness = self.witness
        back: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in range(PARTITIONS):
            offset = self.rng.randint(0, witness.lowest(partition))
            back[TopicPartition("t", partition)] = OffsetAndMetadata(offset, "////")
            if not self.plan.is_stored:  # the offset in the database decides
                witness.done -= {(partition, n) for n in range(offset, witness.lowest(partition))}
        tool = AsyncKafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            connect=self.cluster.connect,
            rng=random.Random(1),
            client_id="tool",
            group_id="g",
            enable_auto_commit=False,
        )
        async with tool:
            with anyio.fail_after(LIMIT):
                while True:
                    try:
                        await tool.commit(back)
                        break
                    except KafkaError:  # members that crashed are still in the group
                        await anyio.sleep(5)
        if not self.plan.is_stored:
            witness.ends.clear()
            self.letters.forgive()
        self.start()


async def _simulate(seed: int) -> list[str]:
    plan = Plan(seed)
    async with (
        MemoryCluster(topics={"t": PARTITIONS, DLQ: 2}, seed=seed) as cluster,
        anyio.create_task_group() as tasks,
    ):
        world = World(cluster, plan, tasks)
        cluster.on("OffsetCommit", world.witness.see_commit)
        cluster.on("Produce", world.letters.produce)
        world.produce(plan.records // 2)
        tasks.start_soon(world.look)
        await world.live_on()
        tasks.cancel_scope.cancel()
    witness = world.witness
    if plan.is_clean:
        for place, count in witness.ends.items():
            if count > 1:
                witness.violations.append(f"{place} was handled {count} times")

        def allowed(place: Place) -> int:
            # A member may leave while the database fails between a letter and its offset.
            writers = len(world.letters.writers[place])
            return writers if place in witness.unstored else 1

        for place, count in world.letters.counts.items():
            if count - world.letters.forgiven[place] > allowed(place):
                witness.violations.append(f"{place} has {count} letters")
    if plan.is_stored:
        cut = {member.name for member in world.members if member.is_cut}
        repeatable = {
            place
            for place in witness.buried & witness.condemned
            if place in witness.unstored or cut & world.letters.writers[place]
        }
        both = repeatable & world.database.results.keys()
        good = Counter(witness.values.keys() - witness.buried | both)
        if (results := world.database.results) != good:
            wrong = sorted((results - good) + (good - results))
            witness.violations.append(f"results are missing or double: {wrong[:5]}")
    return witness.violations


def simulate(seed: int) -> list[str]:
    """Run one seed. Return its violations."""
    return run_virtual(_simulate, seed, seed=seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.processing.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    first = arguments.first if arguments.seed is None else arguments.seed
    failures = 0
    for seed in range(first, first + (arguments.seeds if arguments.seed is None else 1)):
        found = simulate(seed)
        if found:
            failures += 1
            print(f"seed {seed}:", *found[:5], sep="\n  ")
    print(f"{failures} seeds failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
