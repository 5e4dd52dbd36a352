"""Operations that stop a member for a while: its code, or the core of its consumer."""

from __future__ import annotations

import random

import anyio

from tests.simulation.events import CorePaused, now
from tests.simulation.member import MAX_POLL_INTERVAL, SESSION, SLOTS, Habits, Member
from tests.simulation.pausing import core_of, pause
from tests.simulation.world import World


def _one(world: World, rng: random.Random) -> Member | None:
    running = world.running()
    return rng.choice(running)[1] if running else None


async def rest(world: World, rng: random.Random, habits: Habits) -> None:
    """Stop polling after a poll that returned nothing. The group must not be affected."""
    if member := _one(world, rng):
        seconds = rng.uniform(0.3, 0.9) * MAX_POLL_INTERVAL
        again = rng.random() < 0.3
        then = ", without its subscription for a moment" if again else ""
        world.note(f"{member.name} rests for {seconds:.1f} s{then}")
        member.rest(seconds, unsubscribe=again)


async def start_beside_rest(world: World, rng: random.Random, habits: Habits) -> None:
    """Start a member while another one does not poll. It must not wait for that
    member's next poll.
    """
    member, free = _one(world, rng), world.free(SLOTS)
    if member and free:
        seconds = rng.uniform(0.8, 0.9) * MAX_POLL_INTERVAL
        world.note(f"{member.name} rests for {seconds:.1f} s, and another one starts")
        member.rest(seconds, unsubscribe=False)
        with anyio.move_on_after(2 * habits.wait_ms / 1000):
            await member.rests.wait()
        world.start(rng.choice(free), habits, sorted(member.topics))


async def pause_core(world: World, rng: random.Random, habits: Habits) -> None:
    """Stop the tasks of a member's core for a while. Its own code runs on."""
    member = _one(world, rng)
    core = member and core_of(member.consumer)
    if member and core:
        seconds = rng.choice((rng.uniform(0, SESSION), rng.uniform(SESSION, 2 * SESSION)))
        what = f"the core of {member.name} stands still for {seconds:.1f} s"
        world.note(what, fault=True, takes_time=True)
        world.log.add(CorePaused(at=now(), who=member.name, seconds=seconds))
        world.until(seconds, pause(core))
