"""OAUTHBEARER (RFC 7628), with a bearer token, and a JSON object for a refused one."""

from __future__ import annotations

import re
from collections.abc import Callable

from kohort.broker.security._listeners import TokenCheck
from kohort.broker.security._mechanism import (
    CredentialError,
    Identity,
    LoginBrokenError,
    LoginRefusedError,
)

INVALID_TOKEN = '{"status":"invalid_token"}'
"""Challenge after a refused token, and later the error message."""
_OTHER_ID = (
    "Authentication failed: Client requested an authorization id ({}) that is different from the "
    "token's principal name ({})"
)
"""Kafka's message for an authorization id that is not the user of the token."""
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_SCHEME = re.compile(r"\w+ +[-_~+/.a-zA-Z0-9]+=*", re.ASCII)


class OAuthBearerServer:
    """Login by OAUTHBEARER. ``now`` returns epoch seconds."""

    def __init__(self, check: TokenCheck, now: Callable[[], float]) -> None:
        self.identity: Identity | None = None
        self._check = check
        self._now = now
        self._refused = False

    def evaluate(self, token: bytes) -> bytes:
        """Check the token. The response is empty, or says that the token is refused."""
        if self._refused and token == b"\x01":
            raise LoginRefusedError(INVALID_TOKEN)
        self._refused = False
        match = _FIRST.fullmatch(token.decode(errors="replace"))
        if match is None:
            raise CredentialError("not a first message of OAUTHBEARER")
        pairs = dict(each.split("=", 1) for each in match["pairs"].split("\x01")[:-1])
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            if _SCHEME.fullmatch(pairs.get("auth", "")):
                raise LoginBrokenError("the scheme is not Bearer")
            raise CredentialError("no bearer token")
        try:
            user, expiry = self._check(bearer["token"], self._now())
        except ValueError:
            self._refused = True
            return INVALID_TOKEN.encode()
        if match["authzid"] not in (None, user):
            raise LoginRefusedError(_OTHER_ID.format(match["authzid"], user))
        self.identity = Identity(user, int(expiry * 1000))
        return b""
