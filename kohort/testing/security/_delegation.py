"""Delegation tokens (KIP-48): issued to a user, and used by others to log in as that user."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.testing.security._credentials import SCRAM_HASHES, ScramCredential

MAX_LIFE_MS = 7 * 86_400_000
"""Kafka's ``delegation.token.max.lifetime.ms``."""
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
        """True for the owner and the renewers."""
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

    def live(self, token_id: str) -> DelegationToken | None:
        """Return a token that has not expired."""
        token = self._by_id.get(token_id)
        return token if token is not None and self._now_ms() < token.expires_at_ms else None

    def by_hmac(self, wanted: bytes) -> DelegationToken | None:
        """Return the token with this HMAC, also one that has expired."""
        for token in self._by_id.values():
            if hmac.compare_digest(token.hmac, wanted):
                return token
        return None

    def remove(self, token: DelegationToken) -> None:
        """Forget a token."""
        self._by_id.pop(token.id, None)

    def all(self) -> list[DelegationToken]:
        """Return all tokens that have not expired."""
        return [token for token in self._by_id.values() if self.live(token.id) is not None]
