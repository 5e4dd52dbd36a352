"""Clear text of secrets, which only this module reads, and texts of other parties for errors."""

from __future__ import annotations

import base64
import string
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from kohort.config import Secret
from kohort.types import escaped

MASK = "***"
SHORTEST_MASKED = 4
"""Characters of the shortest secret that mask() looks for. Shorter ones occur by chance."""
BEGINNING = 32
"""Characters by which mask() knows the beginning of a longer secret."""
MAX_TEXT = 200
"""Characters of a text by a broker or a certificate that an error repeats."""
_WORD = frozenset(string.ascii_letters + string.digits + "+/_=%-.~")


def text_of(secret: Secret) -> str:
    """Return the secret in clear. Callers pass it on without a local variable."""
    return secret.reveal()


def utf8_of(secret: Secret) -> bytes:
    """Return the UTF-8 bytes of the secret. Callers pass them on without a local variable."""
    return secret.reveal_bytes()


def mask(text: str, *secrets: Secret | None) -> str:
    """Return a text of another party without the secrets that it repeats.

    Identity providers repeat headers and bodies of requests. A word is masked as a whole if it
    contains a secret in hexadecimal digits, base64 or URL form.
    """
    for secret in secrets:
        if secret is None or len(secret.reveal()) < SHORTEST_MASKED:
            continue
        text = text.replace(secret.reveal(), MASK)
        if len(secret.reveal()) > BEGINNING:
            # Servers cut long tokens.
            text = _without_word(text, secret.reveal()[:BEGINNING])
        for form in _forms(secret):
            text = _without_word(text, form)
    return text


def _without_word(text: str, part: str) -> str:
    """Return the text without the words that have the part in them."""
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        while at and text[at - 1] in _WORD:
            at -= 1
        while end < len(text) and text[end] in _WORD:
            end += 1
        text = text[:at] + MASK + text[end:]
        at = text.find(part, at + len(MASK))
    return text


def printable(text: str) -> str:
    """Return the text without control characters, and not longer than an error may be."""
    shown = escaped(text)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


def _forms(secret: Secret) -> Iterator[str]:
    data = secret.reveal_bytes()
    yield data.hex()
    yield data.hex().upper()
    yield quote(data, safe="")
    yield quote(data)
    yield quote_plus(data)
    for plain in (data, quote_plus(data).encode()):
        for shift in range(3):
            # Base64 divides the bytes by three, so it depends on the number of bytes before.
            text = base64.b64encode(bytes(shift) + plain).decode()
            inner = text[-(-shift * 8 // 6) : (shift + len(plain)) * 8 // 6]
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
