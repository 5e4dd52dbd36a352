"""Credentials of users, which are keys derived from passwords."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by their number in requests."""
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
_SALT_BYTES = 20


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Stored data of a password for one SCRAM mechanism (RFC 5802)."""

    hash_name: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_salted(
        cls, hash_name: str, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential of a salted password."""
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        stored_key = hashlib.new(hash_name, client_key).digest()
        server_key = hmac.digest(salted, b"Server Key", hash_name)
        return cls(hash_name, iterations, salt, stored_key, server_key)

    @classmethod
    def of_password(
        cls, hash_name: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Return the credential of a password. This takes milliseconds."""
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        return cls.of_salted(hash_name, salted, salt, iterations)

    def belongs_to(self, password: str) -> bool:
        """True if the credential is that of the password."""
        other = self.of_password(self.hash_name, password, self.salt, self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)


class CredentialStore:
    """Credentials of users for PLAIN and for each SCRAM mechanism."""

    def __init__(self, users: Mapping[str, str] | None = None) -> None:
        self.plain: dict[str, ScramCredential] = {}
        self.scram: dict[tuple[str, str], ScramCredential] = {}
        """Credentials by user and mechanism."""
        for user, password in (users or {}).items():
            self.set_password(user, password)

    def set_password(self, user: str, password: str) -> None:
        """Add a user, or change the password for all mechanisms."""
        for mechanism, hash_name in SCRAM_HASHES.items():
            # A salt is not secret. This one is the same in each run of a simulation.
            seed = f"{mechanism} {user}".encode()
            salt = hashlib.sha256(seed).digest()[:_SALT_BYTES]
            credential = ScramCredential.of_password(hash_name, password, salt)
            self.scram[user, mechanism] = credential
        self.plain[user] = self.scram[user, "SCRAM-SHA-256"]

    def remove(self, user: str) -> None:
        """Remove a user; nothing happens if there is none."""
        self.plain.pop(user, None)
        for mechanism in SCRAM_HASHES:
            self.scram.pop((user, mechanism), None)

    def copy(self) -> CredentialStore:
        """Return a separate store with the same credentials."""
        store = CredentialStore()
        store.plain.update(self.plain)
        store.scram.update(self.scram)
        return store
