"""Tokens for the identity of a machine, from the metadata service of its cloud."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final

from kohort.config import Secret, Url
from kohort.errors import OAuthTokenError
from kohort.security._secrets import mask, text_of
from kohort.security.oauth._http import HttpCall, post
from kohort.security.oauth._jwt import base64_text, encoded
from kohort.security.oauth._oidc import TokenEndpoint
from kohort.security.oauth._tokens import Clock, Token, token_of

GOOGLE_ACCOUNT: Final = "/computeMetadata/v1/instance/service-accounts/default"
GOOGLE_ENDPOINT: Final = Url("http", "metadata.google.internal", 80, f"{GOOGLE_ACCOUNT}/token", "")


class MachineIdentity:
    """The grant without credentials. The header keeps programs that follow links from it."""

    body: Final = None

    def __init__(self, kind: str) -> None:
        self._mark = {"Metadata-Flavor": "Google"} if kind == "google" else {"Metadata": "true"}

    def headers(self) -> Mapping[str, str]:
        """Return the headers."""
        return {"Accept": "application/json", **self._mark}

    def redact(self, text: str) -> str:
        """Return a text from the service without what looks like a secret."""
        return mask(text)


class GoogleTokens:
    """Source of the tokens of Google's managed Kafka, which name the account beside the token."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        url: Url,
        context: Callable[[], ssl.SSLContext],
        extensions: Mapping[str, str],
        *,
        clock: Clock = time.time,
    ) -> None:
        self._endpoint = endpoint
        folder = url.path.rpartition("/")[0]
        self._account_url = Url(url.scheme, url.host, url.port, f"{folder}/", "recursive=true")
        self._context = context
        self._extensions = extensions
        self._clock = clock
        self._account: str | None = None

    async def __call__(self) -> Token:
        """Return a new token. Raises OAuthTokenError."""
        if self._account is None:
            self._account = await self._find_account()
        now = self._clock()
        token = await self._endpoint()
        sealed = Secret(self._signed(token, now))
        return token_of(sealed, now, expires_at=token.expires_at, extensions=self._extensions)

    async def _find_account(self) -> str:
        identity = MachineIdentity("google")
        call = HttpCall(self._account_url, None, identity.headers, self._context, identity.redact)
        email = (await post(call)).get("email")
        if not isinstance(email, str):
            raise OAuthTokenError(
                f"the metadata service {self._account_url} names no service account"
            )
        return email

    def _signed(self, token: Token, now: float) -> str:
        """Return the access token as the signature of a JWT, which Google's brokers expect."""
        claims = {
            "exp": now + 3600 if token.expires_at is None else token.expires_at,
            "iat": now,
            "iss": "Google",
            "scope": "kafka",
            "sub": self._account,
        }
        header = encoded({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"})
        return f"{header}.{encoded(claims)}.{base64_text(text_of(token.value).encode())}"
