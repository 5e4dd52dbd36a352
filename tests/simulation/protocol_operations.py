"""Operations on members of both group protocols, on their reads, on settings and on topics."""

from __future__ import annotations

import random
from typing import Any

from kohort.errors import ErrorCode as E
from kohort.protocol import Request, Response
from kohort.protocol.messages import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse
from kohort.testing import Call
from tests.simulation.member import SESSION, Habits, Member
from tests.simulation.world import TOPICS, World

LARGEST = 6
"""Highest number of partitions that a topic grows to."""
EPOCHS = {
    "ConsumerGroupHeartbeat": (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID),
    "OffsetCommit": (E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID),
    "OffsetFetch": (E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID),
}
"""Error codes for a member of the consumer protocol whose epoch or id is not current."""


async def _under_another(world: World, slot: str, member: Member, *, crashes: bool) -> None:
    """Replace a life by one of another protocol."""
    habits = world.protocols.changed(member.habits)
    ending = ", crashing" if crashes else ""
    world.note(f"restart {member.name} as {habits.protocol}{ending}", fault=crashes)
    if crashes:
        await member.crash(buried=False)
    else:
        member.stop(interrupt=True)
        await member.ended.wait()
    world.start_as(slot, habits, sorted(member.topics))


async def migrate(world: World, rng: random.Random, habits: Habits) -> None:
    """Restart a member under another protocol."""
    running = world.running()
    if running:
        slot, member = rng.choice(running)
        await _under_another(world, slot, member, crashes=False)


async def migrate_crashing(world: World, rng: random.Random, habits: Habits) -> None:
    """Restart a member under another protocol, before the coordinator knows that it has ended."""
    running = world.running()
    if running:
        slot, member = rng.choice(running)
        await _under_another(world, slot, member, crashes=True)


async def migrate_all(world: World, rng: random.Random, habits: Habits) -> None:
    """Restart all members under another protocol, one after the other."""
    for slot, member in world.running():
        if member.alive:
            await _under_another(world, slot, member, crashes=False)


async def grow(world: World, rng: random.Random, habits: Habits) -> None:
    """Add a partition to a topic, and records to the partition."""
    topic = rng.choice(sorted(TOPICS))
    if world.counts[topic] < LARGEST:
        world.grow(topic)
        world.note(f"{topic} has {world.counts[topic]} partitions")
        world.produce(topic, world.counts[topic] - 1, rng.randint(1, 40))


async def subscribe_to_nothing(world: World, rng: random.Random, habits: Habits) -> None:
    """Let a member subscribe to a pattern that matches no topic, for a while or until the end.

    A pattern of the brokers is left out. Without topics it starts no group epoch, as on Apache
    Kafka. So the partitions of the member would wait for another change.
    """
    running = [each for _, each in world.running() if each.habits.pattern == "client"]
    if running:
        member = rng.choice(running)
        world.note(f"subscribe {member.name} to nothing")
        member.resubscribe(frozenset())


async def configure(world: World, rng: random.Random, habits: Habits) -> None:
    """Change a setting of the group. The session is never shorter than members expect."""
    name, values = rng.choice(
        (
            ("consumer.session.timeout.ms", (int(SESSION * 1000), int(1.5 * SESSION * 1000))),
            ("consumer.heartbeat.interval.ms", (500, 1000, 3000)),
            ("consumer.assignment.interval.ms", (0, 1000, 5000)),
        )
    )
    value = rng.choice(values)
    world.note(f"{name} is {value}")
    world.configure(name, value)


def _names_a_member(request: Request[Any]) -> bool:
    """True if a request comes from a member, and not from outside the group."""
    match request:
        case OffsetFetchRequest(groups=groups):
            return any(group.member_id for group in groups)
        case OffsetCommitRequest(member_id=member_id):
            return bool(member_id)
    return True


async def reject_epoch(world: World, rng: random.Random, habits: Habits) -> None:
    """Reject the epoch or the id of a member of the consumer protocol."""
    api = rng.choice((*sorted(EPOCHS), "OffsetFetch"))
    error, times = rng.choice(EPOCHS[api]), rng.randint(1, 3)
    world.note(f"{api} of a member by epoch is answered {error.name}, {times} times", fault=True)

    def reject(call: Call) -> Response | None:
        is_named = call.client_id in world.by_epoch and _names_a_member(call.message)
        return call.error(error) if is_named else None

    world.cluster.on(api, reject, keep=times)


async def lose_answers(world: World, rng: random.Random, habits: Habits) -> None:
    """Carry heartbeats out and lose their responses."""
    times = rng.randint(1, 4)
    world.note(f"the answers to {times} heartbeats by epoch are lost", fault=True)
    world.cluster.disconnect("ConsumerGroupHeartbeat", after=True, times=times)


async def leave_out(world: World, rng: random.Random, habits: Habits) -> None:
    """Leave out a part of the next reads of committed offsets."""
    part, times = rng.choice(("group", "topic", "partition")), rng.randint(1, 2)
    rng_of_parts = random.Random(rng.random())
    what = f"{times} answers to OffsetFetch leave out the {part}"
    world.note(what, fault=True)

    async def shorten(call: Call) -> Response | None:
        response = await call.proceed()
        if isinstance(response, OffsetFetchResponse):
            _shorten(response, part, rng_of_parts)
        return response

    world.cluster.on("OffsetFetch", shorten, keep=times)


def _shorten(response: OffsetFetchResponse, part: str, rng: random.Random) -> None:
    """Remove a group, a topic or a partition from a response in any of its versions."""
    if part == "group":
        response.groups, response.topics = [], []
        return
    bodies: list[Any] = [response, *response.groups]
    for body in bodies:
        topics = list(body.topics)
        if topics:
            topic = topics.pop(rng.randrange(len(topics)))
            if part == "partition" and len(topic.partitions) > 1:
                left_out = rng.randrange(len(topic.partitions))
                topic.partitions = [
                    each for index, each in enumerate(topic.partitions) if index != left_out
                ]
                topics.append(topic)
            body.topics = topics
