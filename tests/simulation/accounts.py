"""Logins of a seed: credentials that the brokers accept, and those that the providers return."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import anyio

from kohort.broker.security._tokens import check_unsecured
from kohort.testing import Authorization, MemoryCluster, Security, unsecured_token
from tests.simulation.member import SLOTS

HANG = 60.0
"""Seconds for which a hanging provider blocks. kohort does not wait for that long."""


_derived = functools.lru_cache(maxsize=4096)(hashlib.pbkdf2_hmac)


@contextmanager
def quick_keys() -> Iterator[None]:
    """Derive the key of a password only once within the block, because that takes
    most of the time.
    """
    with patch.object(hashlib, "pbkdf2_hmac", _derived):
        yield


@dataclass(frozen=True, slots=True)
class Access:
    """Login settings of the members of a seed."""

    protocol: str
    mechanism: str
    """Mechanism of SASL. Empty for a listener without SASL."""
    session_ms: int
    token_life: float
    """Lifetime of a token in seconds."""
    answer_delay_ms: int
    """Delay of the response to a failed login."""

    @property
    def uses_tls(self) -> bool:
        """True if the connect hook raises what TLS would."""
        return self.protocol.endswith("SSL")

    @property
    def uses_tokens(self) -> bool:
        """True for OAUTHBEARER."""
        return self.mechanism == "OAUTHBEARER"

    @classmethod
    def draw(cls, rng: random.Random) -> Access:
        """Draw random settings."""
        protocol = rng.choice((*["SASL_PLAINTEXT", "SASL_SSL"] * 3, "SSL"))
        mechanism = rng.choice(("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "OAUTHBEARER"))
        return cls(
            protocol,
            mechanism if protocol.startswith("SASL") else "",
            rng.choice((3_000, 5_000, 8_000)),
            rng.choice((4.0, 6.0, 10.0)),
            rng.choice((0, 100)),
        )


@dataclass(slots=True)
class Account:
    """User of one slot of members."""

    name: str
    number: int = 0
    """Number of the password, or of the token key, that the brokers accept."""
    given: int = 0
    """Number of the password or key that the member's provider returns."""
    removed: int = 0
    """Faults that keep the user from existing."""
    last_error: str = ""
    """Current fault of the provider: it raises, hangs, or returns outdated values."""

    def password(self, number: int) -> str:
        """Return a password by its number."""
        return f"{self.name}-secret-{number}"


class Accounts:
    """Users of a cluster."""

    def __init__(self, access: Access, rng: random.Random) -> None:
        self.access = access
        self.users = {slot: Account(slot) for slot in SLOTS}
        self._rng = rng
        self._wall_clock: Callable[[], float] = lambda: 0.0

    def security(self) -> Security:
        """Return the security of the cluster. Each client may do what no ACL denies."""
        access = self.access
        users = {name: each.password(0) for name, each in self.users.items()}
        return Security(
            listeners=[access.protocol],
            users=users if access.mechanism and not access.uses_tokens else None,
            tokens=self._check,
            session_lifetime_ms=access.session_ms if access.mechanism else 0,
            failed_authentication_delay_ms=access.answer_delay_ms,
            authorization=Authorization(allow_everyone_if_no_acl_found=True),
        )

    def options(self, slot: str, cluster: MemoryCluster) -> dict[str, Any]:
        """Return the options of a member."""
        access = self.access
        self._wall_clock = cluster.wall_clock
        options: dict[str, Any] = {
            "security_protocol": access.protocol,
            "connect_encrypts": access.uses_tls,  # the network of a member raises TLS errors itself
        }
        if not access.mechanism:
            return options
        options["sasl_mechanism"] = access.mechanism
        if access.uses_tokens:
            options["wall_clock"] = cluster.wall_clock
            options["sasl_oauth_token_provider"] = self._token_of(self.users[slot])
        else:
            options["sasl_credentials"] = self._credentials_of(self.users[slot])
        return options

    # --- the cluster's side ---------------------------------------------------------------------

    def set_up(self, account: Account, cluster: MemoryCluster) -> None:
        """Update the user's credentials in the brokers to those of the account."""
        if self.access.uses_tokens or not self.access.mechanism:
            return  # _check() checks this
        if account.removed:
            cluster.remove_user(account.name)
        else:
            cluster.set_password(account.name, account.password(account.number))

    def _check(self, token: str, now: float) -> tuple[str, float]:
        user, expiry = check_unsecured(token, now)
        account = self.users[user]
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        if account.removed or claims["number"] != account.number:
            raise ValueError("not the key of this user")
        return user, expiry

    # --- the members' side ----------------------------------------------------------------------

    def _credentials_of(self, account: Account) -> Callable[[], Awaitable[tuple[str, str]]]:
        async def credentials() -> tuple[str, str]:
            await self._take_time(account)
            wrong = account.last_error == "outdated"
            return account.name, account.password(-1 if wrong else account.given)

        return credentials

    def _token_of(self, account: Account) -> Callable[[], Awaitable[str]]:
        async def token() -> str:
            await self._take_time(account)
            now = self._wall_clock() - (100 if account.last_error == "outdated" else 0)
            life = self.access.token_life
            return unsecured_token(account.name, life, now=now, number=account.given)

        return token

    async def _take_time(self, account: Account) -> None:
        await anyio.sleep(HANG if account.last_error == "hangs" else self._rng.choice((0.0, 0.3)))
        if account.last_error == "raises":
            raise RuntimeError("the provider has nothing")
