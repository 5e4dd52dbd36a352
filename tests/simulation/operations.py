"""What may happen to members and cluster, and in which mixture."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.simulation.member import Habits
from tests.simulation.world import TOPICS, World

SLOTS = ("a", "b", "c", "d")
Operate = Callable[[World, random.Random, Habits], Awaitable[None]]


def _topics(rng: random.Random) -> list[str]:
    return rng.choice((["t"], ["t", "u"], ["t", "u"], ["u"]))


async def produce(world: World, rng: random.Random, habits: Habits) -> None:
    for _ in range(rng.randint(1, 3)):
        topic = rng.choice(sorted(TOPICS))
        world.produce(topic, rng.randrange(TOPICS[topic]), rng.randint(1, 40))


async def start(world: World, rng: random.Random, habits: Habits) -> None:
    free = world.free(SLOTS)
    if free:
        member = world.start(rng.choice(free), habits, _topics(rng))
        world.note(f"start {member.name}")


async def stop(world: World, rng: random.Random, habits: Habits) -> None:
    running = world.running()
    if running:
        _, member = rng.choice(running)
        interrupt = rng.random() < 0.7
        world.note(f"stop {member.name}{', interrupted' if interrupt else ''}")
        member.stop(interrupt=interrupt)


async def crash(world: World, rng: random.Random, habits: Habits) -> None:
    running = world.running()
    if running:
        _, member = rng.choice(running)
        buried = rng.random() < 0.3
        world.note(f"crash {member.name}{', buried' if buried else ''}", fault=True)
        await member.crash(buried=buried)


async def resubscribe(world: World, rng: random.Random, habits: Habits) -> None:
    running = world.running()
    if running:
        _, member = rng.choice(running)
        topics = frozenset(_topics(rng))
        world.note(f"subscribe {member.name} to {'+'.join(sorted(topics))}")
        member.resubscribe(topics)


@dataclass(frozen=True, slots=True)
class Profile:
    """A mixture of operations. ``name`` decides which invariants hold in it."""

    name: str
    weights: Mapping[Operate, int]
    pause: float = 3.0
    """Seconds between two operations, at most."""


CALM = Profile("calm", {produce: 5, start: 2, stop: 2, resubscribe: 1})
STORM = Profile("storm", {produce: 5, start: 3, stop: 2, crash: 1, resubscribe: 1})
PROFILES = (CALM, STORM, STORM)
