"""Operations on members and cluster, and mixtures of them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
import trio.lowlevel
from trio.testing import MockClock

from kohort.errors import ErrorCode as E
from kohort.protocol import Response
from kohort.testing import Call
from kohort.types import TopicPartition
from tests.simulation.events import Stalled, now
from tests.simulation.idling import pause_core, rest, start_beside_rest
from tests.simulation.login_faults import break_logins
from tests.simulation.member import GROUP, MAX_POLL_INTERVAL, SESSION, SLOTS, Habits, Member
from tests.simulation.protocol_operations import (
    configure,
    grow,
    leave_out,
    lose_answers,
    migrate,
    migrate_all,
    migrate_crashing,
    reject_epoch,
    subscribe_to_nothing,
)
from tests.simulation.protocols import CLASSIC, Protocols
from tests.simulation.world import BROKERS, TOPICS, World

Operate = Callable[[World, random.Random, Habits], Awaitable[None]]

PASSING = {
    "Fetch": (E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE, E.UNKNOWN_LEADER_EPOCH),
    "JoinGroup": (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.UNKNOWN_MEMBER_ID),
    "SyncGroup": (E.REBALANCE_IN_PROGRESS, E.NOT_COORDINATOR, E.UNKNOWN_MEMBER_ID),
    "Heartbeat": (E.NOT_COORDINATOR, E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID),
    "LeaveGroup": (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR),
    "OffsetCommit": (
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_COORDINATOR,
        E.REBALANCE_IN_PROGRESS,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
    ),
    "OffsetFetch": (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.UNSTABLE_OFFSET_COMMIT),
    "FindCoordinator": (E.COORDINATOR_NOT_AVAILABLE,),
    "ListOffsets": (E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER),
    "Metadata": (E.LEADER_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION),
    "OffsetForLeaderEpoch": (E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH),
}
"""Temporary error codes of an API, or codes that a member handles."""
CLASSIC_CODES = {E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION}
"""Codes that no coordinator returns to members of the consumer protocol."""
HEARTBEAT_CODES = (
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.UNKNOWN_MEMBER_ID,
    E.FENCED_MEMBER_EPOCH,
)
APIS = sorted(PASSING)
BACKLOG_BATCHES = 50
"""Batches of a backlog. Each has the bytes of half a second."""
DISTANT_BATCHES, DISTANT_BATCH_BYTES = 30, 40 << 10
"""Batches of a partition that together are more than a first fetch of its broker."""
RETENTION = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 5000}


def _topics(rng: random.Random) -> list[str]:
    return rng.choice((["t"], ["t", "u"], ["t", "u"], ["u"]))


def _one(world: World, rng: random.Random) -> Member | None:
    running = world.running()
    return rng.choice(running)[1] if running else None


# --- records and members ------------------------------------------------------------------------


async def produce(world: World, rng: random.Random, habits: Habits) -> None:
    for _ in range(rng.randint(1, 3)):
        topic = rng.choice(sorted(TOPICS))
        partition, count = rng.randrange(world.counts[topic]), rng.randint(1, 40)
        world.note(f"{count} records for {topic}-{partition}")
        world.produce(topic, partition, count)


async def pile_up(world: World, rng: random.Random, habits: Habits) -> None:
    """Write batches to a partition that take a slow line 25 s, at most twice."""
    if world.rate is None or len(world.backlogs) == 2:
        return
    topic = rng.choice(sorted(TOPICS))
    partition = rng.randrange(world.counts[topic])
    world.note(f"a backlog of {topic}-{partition}")
    world.backlogs.append(TopicPartition(topic, partition))
    for _ in range(BACKLOG_BATCHES):
        world.produce(topic, partition, 1, bytes(world.rate // 2))


async def pile_up_everywhere(world: World, rng: random.Random, habits: Habits) -> None:
    """Write batches to all partitions that a single fetch cannot have, at most twice."""
    if world.rate is None or len(world.backlogs) == 2:
        return
    world.note("backlogs of all partitions")
    for topic, count in sorted(world.counts.items()):
        world.backlogs.append(TopicPartition(topic, 0))
        for partition in range(count):
            for _ in range(DISTANT_BATCHES):
                world.produce(topic, partition, 1, bytes(DISTANT_BATCH_BYTES))


async def throttle(world: World, rng: random.Random, habits: Habits) -> None:
    """Let a broker throttle the next fetch that a member sends to it."""
    node, seconds = rng.choice(BROKERS), rng.uniform(0.5, 3)

    async def throttled(call: Call) -> Response | None:
        response: Any = await call.proceed()
        response.throttle_time_ms = int(seconds * 1000)
        return cast(Response, response)

    world.note(f"broker {node} throttles a fetch for {seconds:.1f} s", fault=True, takes_time=True)
    fault = world.cluster.on("Fetch", throttled, node=node, keep=False)
    world.until(rng.uniform(1, 5), fault.stop)


async def start(world: World, rng: random.Random, habits: Habits) -> None:
    free = world.free(SLOTS)
    if free:
        member = world.start(rng.choice(free), habits, _topics(rng))
        world.note(f"start {member.name}")


async def stop(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        interrupt = rng.random() < 0.7
        world.note(f"stop {member.name}{', interrupted' if interrupt else ''}")
        member.stop(interrupt=interrupt)


async def crash(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        buried = rng.random() < 0.3
        world.note(f"crash {member.name}{', buried' if buried else ''}", fault=True)
        await member.crash(buried=buried)


async def resubscribe(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        topics = frozenset(_topics(rng))
        world.note(f"subscribe {member.name} to {'+'.join(sorted(topics))}")
        member.resubscribe(topics)


async def interrupt(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        world.note(f"interrupt {member.name}")
        member.interrupt()


async def freeze(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        seconds = rng.choice((rng.uniform(0, SESSION), rng.uniform(SESSION, 2 * SESSION)))
        world.note(f"silence around {member.name} for {seconds:.1f} s", fault=True)
        member.network.freeze()
        world.until(seconds, member.network.thaw)


async def block(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        seconds = rng.uniform(0.3, 1.5) * MAX_POLL_INTERVAL
        world.note(f"{member.name} does not poll for {seconds:.1f} s", fault=True)
        member.block_for = seconds


async def stall(world: World, rng: random.Random, habits: Habits) -> None:
    seconds = rng.uniform(0.1, 1.5) * SESSION
    world.note(f"everything stands still for {seconds:.1f} s", fault=True)
    world.log.add(Stalled(at=now(), seconds=seconds))
    cast(MockClock, trio.lowlevel.current_clock()).jump(seconds)


# --- the network --------------------------------------------------------------------------------


async def break_connection(world: World, rng: random.Random, habits: Habits) -> None:
    member = _one(world, rng)
    if member is not None and member.network.break_one():
        world.note(f"a connection of {member.name} breaks", fault=True)


async def slow_down(world: World, rng: random.Random, habits: Habits) -> None:
    if member := _one(world, rng):
        member.network.latency = rng.choice((0.0, 0.05, 0.5))
        world.note(f"latency {member.network.latency} s for {member.name}", fault=True)


async def fragment(world: World, rng: random.Random, habits: Habits) -> None:
    node = rng.choice(BROKERS)
    world.note(f"broker {node} answers in pieces", fault=True, takes_time=True)
    world.until(rng.uniform(1, 5), world.cluster.slow(piece=rng.choice((7, 100)), node=node).stop)


# --- the cluster --------------------------------------------------------------------------------


async def kill_broker(world: World, rng: random.Random, habits: Habits) -> None:
    live = world.cluster.live_brokers
    if len(live) > 1:
        node = rng.choice(live)
        world.note(f"kill broker {node}", fault=True)
        world.cluster.kill_broker(node)


async def start_broker(world: World, rng: random.Random, habits: Habits) -> None:
    dead = [node for node in BROKERS if node not in world.cluster.live_brokers]
    if dead:
        node = rng.choice(dead)
        world.note(f"start broker {node}")
        world.cluster.start_broker(node)


async def bounce_broker(world: World, rng: random.Random, habits: Habits) -> None:
    live = world.cluster.live_brokers
    if len(live) == 1:
        return
    node = rng.choice(live)
    world.note(f"restart broker {node}", fault=True)
    world.cluster.kill_broker(node)
    await anyio.sleep(rng.uniform(0, 2))
    world.cluster.start_broker(node)


async def move_leader(world: World, rng: random.Random, habits: Habits) -> None:
    topic = rng.choice(sorted(TOPICS))
    partition = rng.randrange(world.counts[topic])
    to = world.cluster.move_leader(topic, partition)
    world.note(f"{topic}-{partition} is led by {to}", fault=True)


async def move_coordinator(world: World, rng: random.Random, habits: Habits) -> None:
    to = world.cluster.move_coordinator(GROUP)
    world.note(f"the group is coordinated by {to}", fault=True)


def _apis(world: World) -> list[str]:
    """Return the APIs whose requests may fail."""
    return [*APIS, "ConsumerGroupHeartbeat"] if world.protocols.has_consumers else APIS


async def fail(world: World, rng: random.Random, habits: Habits) -> None:
    api = rng.choice(_apis(world))
    error, times = rng.choice(PASSING.get(api, HEARTBEAT_CODES)), rng.randint(1, 3)
    world.note(f"{api} is answered {error.name}, {times} times", fault=True)

    def refuse(call: Call) -> Response | None:
        is_foreign = error in CLASSIC_CODES and call.client_id in world.by_epoch
        return None if is_foreign else call.error(error)

    world.cluster.on(api, refuse, keep=times)


async def disconnect(world: World, rng: random.Random, habits: Habits) -> None:
    api, after, times = rng.choice((None, *_apis(world))), rng.random() < 0.5, rng.randint(1, 3)
    word = "after" if after else "instead of"
    world.note(f"{api} ends its connection {word} its answer, {times} times", fault=True)
    world.cluster.disconnect(api, after=after, times=times)


async def revoke(world: World, rng: random.Random, habits: Habits) -> None:
    """Deny a right for a while: to read or to describe a topic or the group."""
    seconds, operation = rng.uniform(1, 15), rng.choice(("READ", "READ", "DESCRIBE", "ALL"))
    topic = rng.choice((None, *sorted(TOPICS), *sorted(TOPICS)))
    group = GROUP if topic is None else None
    world.note(
        f"{operation} on {topic or 'the group'} is denied for {seconds:.1f} s",
        fault=True,
        takes_time=True,
    )
    denied = world.cluster.deny("User:*", operation, topic=topic, group=group)
    world.until(seconds, denied.stop)


async def hang(world: World, rng: random.Random, habits: Habits) -> None:
    seconds = rng.uniform(1, 12)
    if rng.random() < 0.3:
        node = rng.choice(BROKERS)
        what = f"broker {node} answers nothing for {seconds:.1f} s"
        hanging = world.cluster.hang(node=node)
    else:
        api = rng.choice(_apis(world))
        what = f"one {api} hangs for {seconds:.1f} s"
        hanging = world.cluster.hang(api, times=1)
    world.note(what, fault=True, takes_time=True)
    world.until(seconds, hanging.stop)


async def answer_late(world: World, rng: random.Random, habits: Habits) -> None:
    """Carry a request out and delay its response."""
    api, seconds, times = rng.choice(_apis(world)), rng.uniform(0, 10), rng.randint(1, 3)
    what = f"the answer to {api} comes {seconds:.1f} s late, {times} times"
    world.note(what, fault=True, takes_time=True)

    async def late(call: Call) -> Response | None:
        response = await call.proceed()
        await anyio.sleep(seconds)
        return response

    world.cluster.on(api, late, keep=times)


async def carry_out_twice(world: World, rng: random.Random, habits: Habits) -> None:
    """Send a request to the broker twice. The second response is the one that arrives."""
    api = rng.choice(_apis(world))
    world.note(f"one {api} is carried out twice", fault=True)

    async def twice(call: Call) -> Response | None:
        await call.proceed()
        return await call.proceed()

    world.cluster.on(api, twice, keep=False)


async def recreate(world: World, rng: random.Random, habits: Habits) -> None:
    topic = rng.choice(sorted(TOPICS))
    seconds = rng.choice((0.0, rng.uniform(0, 5)))
    world.note(f"{topic} is deleted, and created again after {seconds:.1f} s", fault=True)
    world.delete(topic)
    await anyio.sleep(seconds)
    world.create_again(topic)
    # Often more records than were read of the old topic.
    for partition in range(world.counts[topic]):
        world.produce(topic, partition, rng.randint(0, 150))


# --- offsets that expire ------------------------------------------------------------------------


async def outlive_retention(world: World, rng: random.Random, habits: Habits) -> None:
    """Let the time pass after which brokers delete offsets, then crash the consumer."""
    seconds = rng.uniform(1.2, 3) * 60 * RETENTION["offsets_retention_minutes"]
    world.note(f"nothing happens for {seconds:.0f} s")
    await anyio.sleep(seconds)
    for slot, member in world.running():
        world.note(f"restart {member.name}, crashing")
        await member.crash(buried=rng.random() < 0.5)
        world.start(slot, habits, sorted(member.topics))


async def restart(world: World, rng: random.Random, habits: Habits) -> None:
    for slot, member in world.running():
        world.note(f"restart {member.name}")
        member.stop(interrupt=True)
        await member.ended.wait()
        world.start(slot, habits, sorted(member.topics))


# --- static members -----------------------------------------------------------------------------


async def restart_static(world: World, rng: random.Random, habits: Habits) -> None:
    """End a static member, normally or not, and restart it within its session."""
    await _restart_static(world, rng, None)


async def move_static(world: World, rng: random.Random, habits: Habits) -> None:
    """Restart a static member with other topics."""
    await _restart_static(world, rng, _topics(rng))


async def _restart_static(world: World, rng: random.Random, topics: list[str] | None) -> None:
    running = world.running()
    if not running:
        return
    slot, member = rng.choice(running)
    # By the consumer protocol, no other member takes over before the end of the session.
    crashes = rng.random() < 0.5 and member.habits.protocol == CLASSIC
    others = "" if topics is None else f" with {'+'.join(topics)}"
    world.note(f"restart {member.name}{others}{', crashing' if crashes else ''}", fault=crashes)
    if crashes:
        await member.crash(buried=rng.random() < 0.5)
    else:
        member.stop(interrupt=True)
        await member.ended.wait()
    await anyio.sleep(rng.uniform(0, 0.4 * SESSION))
    world.start_as(slot, member.habits, topics or sorted(member.topics))


def habits_of(habits: Habits, slot: str, *, static: bool) -> Habits:
    """Return the habits of the current member in the slot."""
    return replace(habits, instance_id=slot) if static else habits


@dataclass(frozen=True, slots=True)
class Profile:
    """Mixture of operations. ``name`` decides which invariants it must keep."""

    name: str
    weights: Mapping[Operate, float]
    pause: float = 3.0
    """Longest time in seconds between two operations."""
    steady: bool = False
    """True if all members start first and stay."""
    static: bool = False
    by_hand: bool = False
    """True if one consumer assigns all partitions and brokers soon delete offsets."""


_MEMBERS: dict[Operate, float] = {produce: 6, start: 3, stop: 2, resubscribe: 1, interrupt: 1}
_CRASHES: dict[Operate, float] = {crash: 1, freeze: 1, block: 1, stall: 0.3}
_IDLE: dict[Operate, float] = {rest: 2, pause_core: 1}
_NETWORK: dict[Operate, float] = {break_connection: 2, slow_down: 1, fragment: 0.5}
_CLUSTER: dict[Operate, float] = {
    kill_broker: 1,
    start_broker: 1.5,
    move_leader: 1,
    move_coordinator: 1,
    fail: 2,
    disconnect: 1,
    hang: 0.7,
    answer_late: 1,
    carry_out_twice: 1,
}
CALM = Profile("calm", _MEMBERS)
UNPOLLED = Profile("unpolled", _MEMBERS | {rest: 3, start_beside_rest: 3, stop: 4})
CRASHES = Profile("crashes", _MEMBERS | _CRASHES | _IDLE)
FAULTS = Profile("faults", _MEMBERS | _NETWORK | _CLUSTER)
STORM = Profile("storm", _MEMBERS | _CRASHES | _IDLE | _NETWORK | _CLUSTER)
BOUNCE = Profile(
    "bounce", {produce: 4, bounce_broker: 2, move_leader: 1, move_coordinator: 1}, steady=True
)
RECREATED = Profile("recreated", _MEMBERS | {recreate: 2})
RECREATED_STORM = Profile("storm", _MEMBERS | _CRASHES | _NETWORK | _CLUSTER | {recreate: 2})
RIGHTS = Profile("rights", _MEMBERS | {revoke: 3})
RIGHTS_STORM = Profile("storm", _MEMBERS | _CRASHES | _NETWORK | _CLUSTER | {revoke: 3})
LOGINS = Profile("logins", _MEMBERS | {break_logins: 3})
LOGINS_STORM = Profile(
    "storm", _MEMBERS | _CRASHES | _IDLE | _NETWORK | _CLUSTER | {break_logins: 6, revoke: 1}
)
ALONE = Profile("alone", {produce: 2, outlive_retention: 1, restart: 1}, by_hand=True)
STATIC = Profile("static", {produce: 3, restart_static: 2}, steady=True, static=True)
MOVED_STATIC = Profile(
    "moved", {produce: 3, restart_static: 1, move_static: 2}, steady=True, static=True
)
ABSENCES = replace(BOUNCE, weights={**BOUNCE.weights, kill_broker: 1, start_broker: 1.5})
BACKLOGS = replace(CALM, weights={**CALM.weights, pile_up: 3})
BACKLOGS_CRASHES = replace(CRASHES, weights={**CRASHES.weights, pile_up: 3})
BACKLOGS_STORM = replace(STORM, weights={**STORM.weights, pile_up: 3})
DISTANT = replace(CALM, weights={**CALM.weights, pile_up_everywhere: 6})
_FAR: dict[Operate, float] = {pile_up_everywhere: 6, throttle: 8, fragment: 0}
"""Pieces of 7 bytes of a large response would take too many steps."""
DISTANT_FAULTS = replace(FAULTS, weights={**FAULTS.weights, **_FAR})
DISTANT_STORM = replace(STORM, weights={**STORM.weights, **_FAR})
SHORTENED = replace(FAULTS, weights={**FAULTS.weights, leave_out: 3})
SHORTENED_STORM = replace(STORM, weights={**STORM.weights, leave_out: 3})


def profile_for(profile: Profile, protocols: Protocols) -> Profile:
    """Return the profile with the operations of the seed's protocols."""
    if not protocols.has_consumers or profile.steady or profile.by_hand:
        return profile
    more: dict[Operate, float] = {
        grow: 0.5,
        configure: 0.5,
        subscribe_to_nothing: 0.5,
    }
    if fail in profile.weights:
        more |= {reject_epoch: 4, lose_answers: 1}
    if protocols.is_mixed:
        more |= {migrate: 2, migrate_all: 0.2}
    if protocols.is_mixed and crash in profile.weights:
        more |= {migrate_crashing: 0.5}
    return replace(profile, weights={**profile.weights, **more})


PROFILES = (
    CALM,
    UNPOLLED,
    CRASHES,
    FAULTS,
    STORM,
    STORM,
    STORM,
    BOUNCE,
    STATIC,
    RECREATED,
    RECREATED_STORM,
    ALONE,
)
WITH_SLOW_LINES = (BACKLOGS, BACKLOGS, BACKLOGS_CRASHES, BACKLOGS_STORM)
"""Profiles for a tenth of the seeds without racks and logins, whose lines are slow."""
WITH_DISTANCE = (DISTANT, DISTANT_FAULTS, DISTANT_FAULTS, DISTANT_STORM)
"""Profiles for a tenth of the seeds without racks, whose brokers are far away."""
WITH_RACKS = (ABSENCES, ABSENCES, MOVED_STATIC, SHORTENED, SHORTENED_STORM)
"""Profiles for a fifth of the seeds, whose brokers and members have racks."""
WITH_RIGHTS = (RIGHTS, RIGHTS_STORM)
"""Profiles for a tenth of the seeds, instead of the others."""
WITH_LOGINS = (LOGINS, LOGINS, LOGINS_STORM, LOGINS_STORM, CALM, UNPOLLED)
"""Profiles for three quarters of the seeds whose members log in."""
