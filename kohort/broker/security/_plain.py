"""PLAIN (RFC 4616), with authorization id, user and password in one message."""

from __future__ import annotations

from kohort.broker.security._credentials import CredentialStore
from kohort.broker.security._mechanism import (
    OTHER_AUTHORIZATION_ID,
    Identity,
    LoginRefusedError,
)


class PlainServer:
    """Login by PLAIN."""

    def __init__(self, store: CredentialStore) -> None:
        self.identity: Identity | None = None
        self._store = store

    def evaluate(self, token: bytes) -> bytes:
        """Check the password. The response is empty."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            count = min(len(parts), 4)
            raise LoginRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        authorization_id, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise LoginRefusedError(f"Authentication failed: {name} not specified")
        credential = self._store.plain.get(user)
        if credential is None or not credential.belongs_to(password):
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise LoginRefusedError(OTHER_AUTHORIZATION_ID)
        self.identity = Identity(user)
        return b""
