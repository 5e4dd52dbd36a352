"""Run of one seed, with the check of its invariants."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import cast

import anyio
import trio.abc
import trio.lowlevel
from trio.testing import MockClock

from kohort.testing import Authorization, MemoryCluster, Security
from kohort.types import TopicPartition
from tests.simulation.accounts import Access, Accounts, quick_keys
from tests.simulation.epoch_witness import watching_epochs
from tests.simulation.events import (
    Broke,
    Delivered,
    EpochStored,
    EventLog,
    GenerationStored,
    Operation,
    Processed,
    now,
)
from tests.simulation.fetch_witness import watching_fetches
from tests.simulation.invariants import violations
from tests.simulation.member import SLOTS, Habits
from tests.simulation.operations import (
    PROFILES,
    RETENTION,
    WITH_DISTANCE,
    WITH_LOGINS,
    WITH_RACKS,
    WITH_RIGHTS,
    WITH_SLOW_LINES,
    Profile,
    habits_of,
    profile_for,
)
from tests.simulation.pausing import pausable
from tests.simulation.protocols import Protocols, protocols_of
from tests.simulation.witness import watching
from tests.simulation.world import BROKERS, TOPICS, World
from tests.support.virtual import run_virtual

OPERATIONS = 25
"""Default number of operations in a seed."""
STRATEGIES = (
    ("range",),
    ("roundrobin",),
    ("range", "roundrobin"),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)
LEAVE_LIMIT = 20.0
STEPS = 100_000
"""Highest number of task steps in one moment of the virtual clock. More is a busy loop."""

RACKS = ("r1", "r2", "r3")
SHARE_OF_RACKS = 0.2
"""Share of the seeds whose brokers and members have racks."""
SHARE_OF_SLOW_LINES = 0.1
"""Share of the seeds without racks and logins whose members have slow lines.

A session of 3 s would end within a response that takes 5 s.
"""
RATES = (20_000, 100_000)
"""Bytes per second of a slow line."""
SHARE_OF_DISTANCE = 0.1
"""Share of the other seeds without racks whose brokers are far away."""
ROUND_TRIPS = (0.02, 0.15, 0.3)
DISTANT_RATES = (100_000, 400_000)
"""Bytes per second of each connection over a long line."""
FAST_RATE = 2_000_000
"""The same for members that log in, with the shortest round trip.

Their sessions may last 3 s only, and a login takes several round trips.
"""
LARGE_PARTITION = 4 << 20
"""Most bytes of a partition in a fetch over a slow line, which could take minutes."""
SHARE_OF_RIGHTS = 0.1
SHARE_OF_LOGINS = 0.4
"""Share of the seeds whose members log in, or connect by simulated TLS."""
OPEN = Security(
    listeners=["PLAINTEXT"], authorization=Authorization(allow_everyone_if_no_acl_found=True)
)
"""Security in which every user may do everything that no ACL denies."""


class _Watch(trio.abc.Instrument):
    """Watchdog that ends a simulation in which virtual time does not advance."""

    def __init__(self, log: EventLog, scope: anyio.CancelScope, clock: MockClock) -> None:
        self._log = log
        self._scope = scope
        self._clock = clock
        self._at = -1.0
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        at = self._clock.current_time()
        if at != self._at:
            self._at, self._steps = at, 0
        self._steps += 1
        if self._steps == STEPS:
            self._log.add(Broke(at=at, error=f"time stands still: {task.name} and others spin"))
            self._scope.cancel()
        if self._steps >= STEPS:
            self._clock.jump(1.0)  # shielded work has a separate time limit


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a seed."""

    seed: int
    profile: str
    log: EventLog
    violations: list[str]
    seconds: float
    """Duration on the virtual clock."""

    def tally(self) -> Counter[str]:
        """Count what the log has, such as operations, faults, rebalances and records."""
        operations = self.log.of(Operation)
        generations = {event.generation for event in self.log.of(GenerationStored)}
        epochs = {event.epoch for event in self.log.of(EpochStored)}
        return Counter(
            seeds=1,
            operations=len(operations),
            faults=sum(event.fault for event in operations),
            rebalances=len(generations | epochs),
            records=sum(len(event.offsets) for event in self.log.of(Processed)),
            deliveries=len(self.log.of(Delivered)),
            events=len(self.log),
            virtual_seconds=round(self.seconds),
        )


def simulate(seed: int, operations: int = OPERATIONS, kind: str | None = None) -> Outcome:
    """Run one seed from beginning to end. Each run has the same result.

    ``kind`` replaces the group protocols that the seed draws.
    """
    log = EventLog()
    protocols = protocols_of(seed, kind)
    profile, seconds = run_virtual(_live, seed, operations, log, protocols, seed=seed)
    return Outcome(seed, profile.name, log, violations(log, profile.name), seconds)


async def _live(
    seed: int, operations: int, log: EventLog, protocols: Protocols
) -> tuple[Profile, float]:
    rng = random.Random(f"schedule {seed}")
    profile = rng.choice(PROFILES)
    # A separate generator draws these, so that the other seeds stay as they were.
    of_rights = random.Random(f"rights {seed}")
    if of_rights.random() < SHARE_OF_RIGHTS:
        profile = of_rights.choice(WITH_RIGHTS)
    of_logins = random.Random(f"logins {seed}")
    accounts: Accounts | None = None
    if of_logins.random() < SHARE_OF_LOGINS:
        accounts = Accounts(Access.draw(of_logins), random.Random(of_logins.random()))
        if of_logins.random() < 3 / 4:
            profile = of_logins.choice(WITH_LOGINS)
    of_racks = random.Random(f"racks {seed}")
    racks: dict[str, str | None] = {}
    absent: int | None = None
    if of_racks.random() < SHARE_OF_RACKS:
        profile = of_racks.choice(WITH_RACKS)
        racks = {slot: of_racks.choice((None, *RACKS)) for slot in SLOTS}
        absent = of_racks.choice((None, *BROKERS))
    of_lines = random.Random(f"lines {seed}")
    rate: int | None = None
    if not racks and accounts is None and of_lines.random() < SHARE_OF_SLOW_LINES:
        profile = of_lines.choice(WITH_SLOW_LINES)
        rate = of_lines.choice(RATES)
    of_distance = random.Random(f"distance {seed}")
    round_trip = 0.0
    if not racks and rate is None and of_distance.random() < SHARE_OF_DISTANCE:
        profile = of_distance.choice(WITH_DISTANCE)
        rate, round_trip = FAST_RATE, ROUND_TRIPS[0]
        if accounts is None:
            rate, round_trip = of_distance.choice(DISTANT_RATES), of_distance.choice(ROUND_TRIPS)
    profile = profile_for(profile, protocols)
    of_polls = random.Random(f"long polls {seed}")
    autocommit = rng.random() < 0.5
    most = rng.choice((5, 50))
    habits = Habits(
        autocommit=autocommit,
        strategy=rng.choice(STRATEGIES),
        commit_in_listener=not autocommit and rng.random() < 0.5,
        most=most,
        work=1.0 if most > 5 and rng.random() < 0.3 else 0.2,
        listen=rng.choice((0.0, 0.5)),
        wait_ms=rng.choice((0, 1000, 4000)) or 200,
        partition_bytes=None if rate is None else LARGE_PARTITION,
        long_poll_ms=of_polls.choice((None, 5000)),
    )
    if profile.by_hand:
        places = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
        habits = replace(habits, autocommit=True, by_hand=frozenset(places))
    settings = RETENTION if profile.by_hand else protocols.settings()
    clock = cast(MockClock, trio.lowlevel.current_clock())
    with (
        anyio.CancelScope() as scope,
        watching_epochs(log) as witness,
        watching(log, witness.record_stored),
        pausable(),
        quick_keys(),
        watching_fetches(log) if round_trip else nullcontext(),
    ):
        trio.lowlevel.add_instrument(_Watch(log, scope, clock))
        async with MemoryCluster(
            3,
            TOPICS,
            auto_create_topics=False,
            racks=RACKS if racks else None,
            group_settings=settings,
            seed=seed,
            security=OPEN if accounts is None else accounts.security(),
        ) as cluster:
            world = World(cluster, log, rng, accounts, protocols, racks, rate, round_trip)
            if absent is not None:
                cluster.kill_broker(absent)
            world.by_epoch = witness.by_epoch
            await _in_world(world, profile, habits, operations)
    return profile, now()


async def _in_world(world: World, profile: Profile, habits: Habits, operations: int) -> None:
    rng = world.rng
    async with anyio.create_task_group() as tasks:
        world.tasks = tasks
        for slot in SLOTS[: 1 if profile.by_hand else rng.randint(1, 3)]:
            world.start(slot, habits_of(habits, slot, static=profile.static), TOPICS)
        if profile.steady:
            await world.steady()
        doings, weights = zip(*profile.weights.items(), strict=True)
        for _ in range(operations):
            (operate,) = rng.choices(doings, weights)
            await operate(world, rng, habits)
            await anyio.sleep(rng.uniform(0, profile.pause))
        if not world.running():
            world.start(world.free(SLOTS)[0], habits, TOPICS)
        await world.settle()
        for _, member in world.running():
            member.stop(interrupt=True)
        with anyio.move_on_after(LEAVE_LIMIT):
            for member in world.members.values():
                if not member.crashed:
                    await member.ended.wait()
        tasks.cancel_scope.cancel()
