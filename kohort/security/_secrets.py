"""The one module that reads secrets of the configuration in clear."""

from __future__ import annotations

from kohort.config import Secret

MASK = "***"
SHORTEST_MASKED = 4
"""Characters of the shortest secret that mask() looks for: shorter ones occur by chance."""


def text_of(secret: Secret) -> str:
    """Return the secret in clear. Callers pass it on without a local variable."""
    return secret.reveal()


def utf8_of(secret: Secret) -> bytes:
    """Return the UTF-8 bytes of the secret. Callers pass them on without a local variable."""
    return secret.reveal_bytes()


def mask(text: str, *secrets: Secret | None) -> str:
    """Return a text of another party without the secrets that it repeats."""
    for secret in secrets:
        if secret is not None and len(secret.reveal()) >= SHORTEST_MASKED:
            text = text.replace(secret.reveal(), MASK)
    return text
