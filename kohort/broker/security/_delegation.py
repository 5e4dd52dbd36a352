"""Delegation tokens (KIP-48), with which other clients log in as the token's owner."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.broker.security._credentials import SCRAM_HASHES, ScramCredential

MAX_LIFE_MS = 7 * 86_400_000
"""Kafka's ``delegation.token.max.lifetime.ms``."""
CHECK_MS = 3_600_000
"""Kafka's ``delegation.token.expiry.check.interval.ms``, the time that expired tokens are kept.

Until then they can be described, and a login with one gets a session of 0 ms.
"""
EXPIRY_MS = 86_400_000
"""Kafka's ``delegation.token.expiry.time.ms``."""


@dataclass(slots=True)
class DelegationToken:
    """A token. Times are epoch milliseconds. ``hmac`` in base64 is the password."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int
    hmac: bytes = field(repr=False)

    def credential(self, mechanism: str) -> ScramCredential:
        """Return the token's credential for a SCRAM mechanism."""
        salt = hashlib.sha256(self.id.encode()).digest()[:20]
        password = base64.b64encode(self.hmac).decode()
        return ScramCredential.of_password(SCRAM_HASHES[mechanism], password, salt)

    def may_renew(self, principal: str) -> bool:
        """True if the principal is the owner or a renewer."""
        return principal == self.owner or principal in self.renewers


class DelegationTokens:
    """The tokens of a cluster. ``now_ms`` returns epoch milliseconds."""

    def __init__(self, key: bytes, now_ms: Callable[[], int]) -> None:
        self._key = key
        self._now_ms = now_ms
        self._by_id: dict[str, DelegationToken] = {}

    def create(
        self, token_id: str, owner: str, requester: str, renewers: tuple[str, ...], max_life_ms: int
    ) -> DelegationToken:
        """Issue a token. ``max_life_ms`` below 0 is Kafka's default."""
        now = self._now_ms()
        life = MAX_LIFE_MS if max_life_ms < 0 else min(max_life_ms, MAX_LIFE_MS)
        token = DelegationToken(
            token_id,
            owner,
            requester,
            renewers,
            now,
            now + min(life, EXPIRY_MS),
            now + life,
            hmac.digest(self._key, token_id.encode(), "sha512"),
        )
        self._by_id[token_id] = token
        return token

    def find(self, token_id: str) -> DelegationToken | None:
        """Return a token, also an expired one that is still kept."""
        self._forget()
        return self._by_id.get(token_id)

    def has_expired(self, token: DelegationToken) -> bool:
        """True if the token's expiry has passed."""
        return self._now_ms() >= token.expires_at_ms

    def by_hmac(self, wanted: bytes) -> DelegationToken | None:
        """Return the token with this HMAC, also an expired one that is still kept."""
        self._forget()
        for token in self._by_id.values():
            if hmac.compare_digest(token.hmac, wanted):
                return token
        return None

    def remove(self, token: DelegationToken) -> None:
        """Forget a token."""
        self._by_id.pop(token.id, None)

    def all(self) -> list[DelegationToken]:
        """Return all tokens that are kept."""
        self._forget()
        return list(self._by_id.values())

    def _forget(self) -> None:
        """Remove the tokens that expired more than :data:`CHECK_MS` ago."""
        until = self._now_ms() - CHECK_MS
        for token in [each for each in self._by_id.values() if each.expires_at_ms <= until]:
            self.remove(token)
