"""JSON Web Tokens: reading their claims, unsecured tokens, and signed assertions.

Claims are read to plan when a token is replaced, and to say what a refused token contained. Their
signature is the broker's to verify.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kohort.errors import InvalidOptionError, OAuthTokenError
from kohort.security._secrets import printable, utf8_of

if TYPE_CHECKING:
    from kohort.config import Secret

MAX_TOKEN = 16_384
"""Characters of the longest token."""
ALGORITHMS = ("RS256", "ES256")
_SHOWN_CLAIMS = ("sub", "aud", "iss", "scope")
_LARGEST_TIME = 1e11
"""Seconds. Larger times are milliseconds: this one is in the year 5138."""


def claims_of(token: str) -> Mapping[str, Any] | None:
    """Return the unverified claims of a token, or None for a token that is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        found = json.loads(_decoded(parts[1]))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def time_claim(claims: Mapping[str, Any] | None, name: str) -> float | None:
    """Return a claim that is a time as seconds since the epoch, or None."""
    return None if claims is None else epoch_seconds(claims.get(name))


def epoch_seconds(value: Any) -> float | None:
    """Return a time as seconds since the epoch, given as seconds, milliseconds or a datetime.

    A datetime without a time zone is one of UTC. None for anything else.
    """
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    if not math.isfinite(seconds):
        return None
    return seconds / 1000 if seconds > _LARGEST_TIME else seconds


def shown_claims(claims: Mapping[str, Any] | None) -> str:
    """Return the claims that brokers check, as they may stand in an error."""
    if claims is None:
        return "The token is no JWT"
    found = [
        f"{name}={printable(text)}"
        for name in _SHOWN_CLAIMS
        if (text := _claim_text(claims.get(name))) is not None
    ]
    return "The token has " + (", ".join(found) or "none of sub, aud, iss and scope")


def _claim_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return None if value is None else type(value).__name__


def unsecured(claims: Mapping[str, Any]) -> str:
    """Return a token without a signature, for brokers that accept any name."""
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def signer(algorithm: str, pem: bytes, passphrase: Secret | None) -> Callable[[bytes], bytes]:
    """Return the function that signs with a private key. Needs the library cryptography.

    Raises InvalidOptionError for a key that does not load or is of another kind.
    """
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    except ImportError:
        raise InvalidOptionError(
            "signing an OAuth assertion needs the library cryptography: "
            "install kohort with the extra crypto"
        ) from None
    problem = ""
    try:
        key = serialization.load_pem_private_key(
            pem, None if passphrase is None else utf8_of(passphrase)
        )
    except (TypeError, ValueError) as error:
        problem = type(error).__name__
    except Exception as error:  # an algorithm that the library does not have
        problem = f"unusable key, {type(error).__name__}"
    finally:
        del pem
    if problem:
        raise InvalidOptionError(
            "the private key of the OAuth assertion does not load: "
            f"{problem}. Check that it is PEM, and its passphrase"
        )
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        if key.curve.name == "secp256r1":

            def sign(data: bytes) -> bytes:
                r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
                return r.to_bytes(32, "big") + s.to_bytes(32, "big")

            return sign
    needed = "an RSA key" if algorithm == "RS256" else "an EC key on the curve P-256"
    raise InvalidOptionError(f"an OAuth assertion with {algorithm} needs {needed}")


def signed(
    claims: Mapping[str, Any],
    algorithm: str,
    sign: Callable[[bytes], bytes],
    header: Mapping[str, Any] | None = None,
) -> str:
    """Return a signed token. ``header`` has further fields such as ``kid``."""
    head = {"typ": "JWT", **(header or {}), "alg": algorithm}
    text = f"{encoded(head)}.{encoded(claims)}"
    return f"{text}.{base64_text(sign(text.encode()))}"


def encoded(fields: Mapping[str, Any]) -> str:
    try:
        return base64_text(json.dumps(dict(fields), separators=(",", ":")).encode())
    except (TypeError, ValueError) as error:
        raise OAuthTokenError("a claim of the token is no JSON value") from error


def base64_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
