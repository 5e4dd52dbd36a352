"""Operations that prevent logins of members, or end their sessions, for a while."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from kohort.protocol import Response
from kohort.protocol.messages import SaslAuthenticateResponse
from kohort.testing import Call
from tests.simulation.accounts import Account, Accounts
from tests.simulation.events import LoginsFail, now
from tests.simulation.member import Habits
from tests.simulation.world import BROKERS, World

REFUSED = frozenset({"SaslAuthenticationFailedError"})
OF_PROVIDERS = {"raises": "SecurityError", "outdated": "SaslAuthenticationFailedError"}
OF_TOKEN_PROVIDERS = {"outdated": "OAuthTokenError"}
"""Error that a caller may see, by the provider's fault. The other faults cause none."""
CERTIFICATES = ("expired", "not_yet_valid", "wrong_host", "unknown_ca")


def _begin(
    world: World,
    what: str,
    seconds: float,
    end: Callable[[], None],
    errors: frozenset[str] = REFUSED,
    slot: str = "",
) -> None:
    """Log a fault and schedule its end."""
    world.note(f"{what} for {seconds:.1f} s", fault=True)
    world.log.add(LoginsFail(at=now(), slot=slot, errors=errors, until=now() + seconds))
    world.until(seconds, end)


def _accounts(world: World, rng: random.Random) -> tuple[Accounts, list[Account], str]:
    """Return the accounts, those that a fault affects, and their name."""
    accounts = world.accounts
    assert accounts is not None
    slot = rng.choice(("", *sorted(accounts.users)))
    users = [accounts.users[slot]] if slot else list(accounts.users.values())
    return accounts, users, slot


async def change_password(world: World, rng: random.Random) -> None:
    """Change the password in the brokers before the members' providers return it."""
    accounts, users, slot = _accounts(world, rng)
    seconds = rng.choice((0.0, rng.uniform(0, 12)))
    for user in users:
        user.number += 1
        accounts.set_up(user, world.cluster)

    def end() -> None:
        for user in users:
            user.given = user.number

    what = f"the provider of {slot or 'everybody'} does not know the new password"
    _begin(world, what, seconds, end, slot=slot)


async def remove_user(world: World, rng: random.Random) -> None:
    """Remove a user for a while."""
    accounts, users, slot = _accounts(world, rng)
    for user in users:
        user.removed += 1
        accounts.set_up(user, world.cluster)
    over = False

    def end() -> None:
        nonlocal over
        for user in users if not over else ():
            user.removed -= 1
            accounts.set_up(user, world.cluster)
        over = True

    _begin(world, f"user {slot or 'of everybody'} is removed", rng.uniform(0.5, 12), end, slot=slot)


async def break_provider(world: World, rng: random.Random) -> None:
    """Let a provider raise, hang, or return outdated values."""
    accounts, users, slot = _accounts(world, rng)
    last_error = rng.choice(("raises", "hangs", "outdated"))
    for user in users:
        user.last_error = last_error

    def end() -> None:
        for user in users:
            user.last_error = ""

    known = OF_TOKEN_PROVIDERS if accounts.access.uses_tokens else OF_PROVIDERS
    errors = frozenset({known[last_error]} if last_error in known else ())
    what = f"the provider of {slot or 'everybody'} {last_error}"
    _begin(world, what, rng.uniform(0.5, 15), end, errors, slot)


async def refuse_logins(world: World, rng: random.Random) -> None:
    """Refuse all logins for a while."""
    node = rng.choice((None, *BROKERS))
    fault = world.cluster.fail_login(times=None, node=node)
    _begin(world, f"logins at {node or 'all brokers'} fail", rng.uniform(0.5, 12), fault.stop)


async def forge(world: World, rng: random.Random) -> None:
    """Let brokers fail to prove that they know the password."""
    node = rng.choice((None, *BROKERS))
    how = rng.choice(("signature", "no_signature", "nonce", "iterations"))
    fault = world.cluster.forge_scram(how, node=node)
    what = f"{node or 'all brokers'} forge SCRAM ({how})"
    _begin(world, what, rng.uniform(0.5, 12), fault.stop, frozenset({"SaslServerError"}))


async def end_sessions_early(world: World, rng: random.Random) -> None:
    """End sessions after half the time that the brokers promise."""
    node = rng.choice((None, *BROKERS))

    async def promise(call: Call) -> Response | None:
        response = await call.proceed()
        if isinstance(response, SaslAuthenticateResponse):
            response.session_lifetime_ms *= 2
        return response

    fault = world.cluster.on("SaslAuthenticate", promise, node=node)
    what = f"sessions at {node or 'all brokers'} end early"
    _begin(world, what, rng.uniform(5, 15), fault.stop, frozenset())


async def break_tls(world: World, rng: random.Random) -> None:
    """Let TLS handshakes fail, or take too long."""
    node = rng.choice((None, *BROKERS))
    kind = rng.choice(("slow", "plain", *CERTIFICATES))
    errors = frozenset({"TlsVerificationError"})
    if kind == "slow":
        fault, errors = world.cluster.slow_handshake(node=node), frozenset()
    elif kind == "plain":
        fault, errors = world.cluster.answer_plainly(node=node), frozenset({"WrongListenerError"})
    else:
        fault = world.cluster.serve_certificate(kind, node=node)
    what = f"TLS of {node or 'all brokers'} is {kind}"
    _begin(world, what, rng.uniform(0.5, 12), fault.stop, errors)
    await _end_some(world, rng)


async def reset_handshakes(world: World, rng: random.Random) -> None:
    """Reset the connections of a member in the handshake."""
    running = world.running()
    if running:
        member = rng.choice(running)[1]
        member.network.resets_handshakes = True
        what = f"handshakes of {member.name} are reset"
        _begin(world, what, rng.uniform(0.5, 12), member.network.complete_handshakes, frozenset())
        await _end_some(world, rng)


async def _end_some(world: World, rng: random.Random) -> None:
    """End some connections, because only new ones have a handshake."""
    for _, member in world.running():
        for _ in range(rng.randint(0, 3)):
            member.network.break_one()


async def break_logins(world: World, rng: random.Random, habits: Habits) -> None:
    """Start one of the faults above that this seed supports."""
    accounts = world.accounts
    assert accounts is not None
    access = accounts.access
    doings: list[Callable[[World, random.Random], Awaitable[None]]] = []
    if access.mechanism:
        doings += [change_password, remove_user, break_provider, refuse_logins, end_sessions_early]
    if access.mechanism.startswith("SCRAM"):
        doings += [forge]
    if access.uses_tls:
        doings += [break_tls, reset_handshakes]
    await rng.choice(doings)(world, rng)
