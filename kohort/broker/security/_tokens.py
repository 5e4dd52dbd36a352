"""JSON web tokens (RFC 7519) of test clusters, without a signature or signed by a test key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import secrets
import time
from typing import Any

_SKEW_S = 30.0
"""Largest difference of clocks in seconds, Kafka's ``sasl.oauthbearer.clock.skew.seconds``."""


def unsecured_token(
    user: str, life: float = 300.0, *, now: float | None = None, **claims: object
) -> str:
    """Return a token without a signature, which expires ``life`` seconds after ``now``.

    ``now`` is in seconds since the epoch, None for the present. ``claims`` are added to ``sub``,
    ``iat`` and ``exp``; None removes one.
    """
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(_claims(user, life, now, claims))}."


def check_unsecured(token: str, now: float) -> tuple[str, float]:
    """Return user and expiry of an unsecured token; ValueError refuses it, as Kafka does."""
    head, claims, signature = _split(token)
    if head.get("alg") != "none" or signature:
        raise ValueError("the token is signed")
    return _checked(claims, now, skew=0.0)


class TokenKey:
    """A key that signs and checks tokens: use it as ``tokens`` of :class:`Security`.

    ``audience`` and ``issuer`` are required of tokens if they are not empty.
    """

    def __init__(self, *, audience: str = "", issuer: str = "") -> None:
        self._audience = audience
        self._issuer = issuer
        self._key = secrets.token_bytes(32)

    def token(
        self, user: str, life: float = 300.0, *, now: float | None = None, **claims: object
    ) -> str:
        """Return a signed token, which expires ``life`` seconds after ``now``.

        ``now`` is in seconds since the epoch, None for the present. ``claims`` are added to those
        that the check requires; None removes one.
        """
        own = {"aud": self._audience or None, "iss": self._issuer or None}
        text = f"{_part({'alg': 'HS256'})}.{_part(_claims(user, life, now, own | claims))}"
        return f"{text}.{_encoded(self._signature(text))}"

    def __call__(self, token: str, now: float) -> tuple[str, float]:
        """Return user and expiry of a token; ValueError refuses it."""
        head, claims, signature = _split(token)
        text = token.rpartition(".")[0]
        if head.get("alg") != "HS256" or not hmac.compare_digest(signature, self._signature(text)):
            raise ValueError("not a token of this key")
        return check_claims(claims, now, self._audience, self._issuer)

    def _signature(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def check_claims(
    claims: dict[str, Any], now: float, audience: str = "", issuer: str = ""
) -> tuple[str, float]:
    """Return user and expiry of signed claims; ValueError refuses them, as Kafka does.

    Clocks may differ by 30 seconds.
    """
    given = claims.get("aud", [])
    audiences = given if isinstance(given, list) else [given]
    if audience and audience not in audiences:
        raise ValueError("the token has another audience")
    if issuer and claims.get("iss") != issuer:
        raise ValueError("the token has another issuer")
    _number(claims, "iat")  # which unsecured tokens may lack
    if _number(claims, "nbf", default=now) > now + _SKEW_S:
        raise ValueError("nbf is in the future")
    return _checked(claims, now, skew=_SKEW_S)


def _claims(user: str, life: float, now: float | None, more: dict[str, Any]) -> dict[str, Any]:
    now = time.time() if now is None else now
    found = {"sub": user, "iat": now - 1, "exp": now + life, **more}
    return {name: value for name, value in found.items() if value is not None}


def _checked(claims: dict[str, Any], now: float, skew: float) -> tuple[str, float]:
    user = claims.get("sub")
    if not isinstance(user, str) or not user.strip():
        raise ValueError("no sub")
    expiry = _number(claims, "exp")
    issued = _number(claims, "iat", default=min(now, expiry))
    if issued > now + skew or issued > expiry:
        raise ValueError("iat is in the future")
    if now - skew >= expiry:
        raise ValueError("expired")
    return user, expiry


def _number(claims: dict[str, Any], name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a number")
    return float(value)


def _split(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("not three parts")
    try:
        head, claims, signature = (_decoded(part) for part in parts)
        found = json.loads(head), json.loads(claims)
    except (binascii.Error, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("not a web token") from error
    if not all(isinstance(each, dict) for each in found):
        raise ValueError("not JSON objects")
    return *found, signature


def _part(content: dict[str, Any]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
