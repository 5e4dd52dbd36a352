"""JSON web tokens for tests: signed by a key of this run, or unsecured."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
ISSUER = "https://idp.test"
KEY_ID = "k1"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _part(content: dict[str, Any]) -> str:
    return _encoded(json.dumps(content).encode())


def claims(subject: str, life: float = 300.0, **more: Any) -> dict[str, Any]:
    """Return the claims of a good token that lives for ``life`` seconds. None leaves one out."""
    now = time.time()
    found = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now - 1, "exp": now + life}
    return {name: value for name, value in (found | more).items() if value is not None}


def unsecured(subject: str, life: float = 300.0, **more: Any) -> str:
    """Return a token without a signature."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims(subject, life, **more))}."


class SigningKey:
    """RSA key that signs tokens, and its JWKS."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON web key set."""
        numbers = self._key.public_key().public_numbers()
        modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")
        key = {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256"}
        return {"keys": [key | {"n": _encoded(modulus), "e": "AQAB"}]}

    def write_jwks(self, path: Path) -> None:
        """Write the set into a file."""
        path.write_text(json.dumps(self.jwks()))

    def token(self, subject: str, life: float = 300.0, **more: Any) -> str:
        """Return a signed token with the claims of :func:`claims`."""
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        text = f"{_part(head)}.{_part(claims(subject, life, **more))}"
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_encoded(signature)}"

    def verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token of this key. Raise ValueError for any other."""
        text, _, signature = token.rpartition(".")
        head, _, content = text.partition(".")
        try:
            self._key.public_key().verify(
                _decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
            kept, found = json.loads(_decoded(head)), json.loads(_decoded(content))
        except InvalidSignature as error:
            raise ValueError("another signature") from error
        if kept.get("alg") != "RS256" or kept.get("kid") != KEY_ID or not isinstance(found, dict):
            raise ValueError("another key")
        return found
