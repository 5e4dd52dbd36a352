"""Tokens from an OpenID Connect provider, from a file, or made by the client itself.

Each class here is the ``fetch`` of a TokenSource: it is called when a new token is needed.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus, urlencode

import anyio

from kohort.config import Secret, Url
from kohort.errors import InvalidOptionError, OAuthTokenError, OAuthTokenUnavailableError
from kohort.security._calls import CALL_SECONDS, in_thread
from kohort.security._secrets import mask, printable, text_of, utf8_of
from kohort.security.oauth._http import HttpCall, post
from kohort.security.oauth._jwt import signed, signer, unsecured
from kohort.security.oauth._tokens import Clock, Token, token_of

if TYPE_CHECKING:
    from kohort.config import AssertionConfig

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
MAX_FILE = 65_536
_FORM = "application/x-www-form-urlencoded"


class ClientCredentials:
    """The grant with a client id and its secret."""

    def __init__(
        self, client_id: str, client_secret: Secret, scope: str | None, *, urlencode: bool = False
    ) -> None:
        self._id = client_id
        self._secret = client_secret
        self._scope = scope
        self._urlencode = urlencode
        """True to encode id and secret as RFC 6749 asks, which few providers expect."""

    def body(self) -> bytes:
        """Return the form."""
        form = {"grant_type": "client_credentials"}
        return urlencode(form | ({"scope": self._scope} if self._scope else {})).encode()

    def headers(self) -> Mapping[str, str]:
        """Return the headers, with the credentials."""
        return {**_headers(), "Authorization": "Basic " + base64.b64encode(self._pair()).decode()}

    def _pair(self) -> bytes:
        if not self._urlencode:
            return self._id.encode() + b":" + utf8_of(self._secret)
        return f"{quote_plus(self._id)}:{quote_plus(text_of(self._secret))}".encode()

    def redact(self, text: str) -> str:
        """Return a text from the provider without the secret."""
        return mask(text, self._secret)


class AssertionGrant:
    """The grant with a signed assertion (RFC 7523)."""

    def __init__(self, assertion: Callable[[], Secret], scope: str | None) -> None:
        self._assertion = assertion
        self._scope = scope
        self._sent: Secret | None = None

    def body(self) -> bytes:
        """Return the form, with a new assertion."""
        form = {"grant_type": JWT_BEARER} | ({"scope": self._scope} if self._scope else {})
        self._sent = self._assertion()
        return f"{urlencode(form)}&assertion={quote_plus(text_of(self._sent))}".encode()

    def headers(self) -> Mapping[str, str]:
        """Return the headers."""
        return _headers()

    def redact(self, text: str) -> str:
        """Return a text from the provider without the assertion that was sent."""
        return mask(text, self._sent)


def _headers() -> dict[str, str]:
    return {"Content-Type": _FORM, "Accept": "application/json"}


class Assertion:
    """Source of the assertions of a grant, signed by a private key."""

    def __init__(
        self, config: AssertionConfig, key_pem: Callable[[], bytes], *, clock: Clock = time.time
    ) -> None:
        self._config = config
        self._key_pem = key_pem
        self._clock = clock

    def __call__(self) -> Secret:
        """Return a new assertion. The key is read each time, because its file may be replaced."""
        header, claims = self._fields(int(self._clock()))
        algorithm = self._config.sasl_oauthbearer_assertion_algorithm
        passphrase = self._config.sasl_oauthbearer_assertion_private_key_passphrase
        try:
            sign = signer(algorithm, self._key_pem(), passphrase)
        except InvalidOptionError as error:
            raise OAuthTokenError(str(error)) from None
        return Secret(signed(claims, algorithm, sign, header))

    def _fields(self, now: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and claims. The options override the template."""
        config = self._config
        header: dict[str, Any] = {}
        claims: dict[str, Any] = {
            "iat": now,
            "nbf": now - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
            "exp": now + config.sasl_oauthbearer_assertion_claim_exp_seconds,
        }
        if config.sasl_oauthbearer_assertion_claim_jti_include:
            claims["jti"] = secrets.token_urlsafe(16)
        if config.sasl_oauthbearer_assertion_template_file is not None:
            found = _template(Path(config.sasl_oauthbearer_assertion_template_file))
            header |= found.get("header", {})
            claims |= found.get("payload", {})
        given = {
            "aud": config.sasl_oauthbearer_assertion_claim_aud,
            "iss": config.sasl_oauthbearer_assertion_claim_iss,
            "sub": config.sasl_oauthbearer_assertion_claim_sub,
        }
        return header, claims | {name: value for name, value in given.items() if value is not None}


def _template(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(read_file(path, "assertion template"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name, {}), dict) for name in ("header", "payload")
    ):
        raise OAuthTokenError(
            f"the assertion template {printable(str(path))} is not JSON with header and payload"
        )
    return found


def read_file(path: Path, what: str) -> bytes:
    """Return the content of a small file. Raises OAuthTokenError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise OAuthTokenUnavailableError(
            f"the {what} {printable(str(path))} cannot be read: {error.strerror or error}"
        ) from error.with_traceback(None)
    if len(content) > MAX_FILE:
        del content
        raise OAuthTokenError(f"the {what} {printable(str(path))} has more than {MAX_FILE} bytes")
    return content


def file_secret(path: Path, what: str) -> Secret:
    """Return the text of a file without white space around it. Raises OAuthTokenError."""
    sealed = Secret(read_file(path, what).strip().decode("latin-1"))
    if not text_of(sealed).isascii():
        raise OAuthTokenError(f"the {what} {printable(str(path))} is not ASCII")
    return sealed


class Grant(Protocol):
    """The request to a token endpoint."""

    @property
    def body(self) -> Callable[[], bytes] | None: ...
    def headers(self) -> Mapping[str, str]: ...
    def redact(self, text: str) -> str: ...


class TokenEndpoint:
    """Source of tokens from a token endpoint."""

    def __init__(
        self,
        url: Url,
        grant: Grant,
        context: Callable[[], ssl.SSLContext],
        extensions: Mapping[str, str],
        *,
        clock: Clock = time.time,
    ) -> None:
        self._url = url
        self._grant = grant
        self._context = context
        self._extensions = extensions
        self._clock = clock

    async def __call__(self) -> Token:
        """Return a new token. Raises OAuthTokenError."""
        asked_at = self._clock()
        return self._token(_Answer(await post(self._call())), asked_at)

    def _call(self) -> HttpCall:
        grant = self._grant
        return HttpCall(self._url, grant.body, grant.headers, self._context, grant.redact)

    def _token(self, answer: _Answer, asked_at: float) -> Token:
        if answer.token is None:
            raise OAuthTokenError(
                f"the token endpoint {self._url} responded without an access_token"
            )
        if answer.token_type is not None and answer.token_type.lower() != "bearer":
            raise OAuthTokenError(
                f"the token endpoint {self._url} responded with a token of type "
                f"{printable(answer.token_type)!r}: expected 'Bearer'"
            )
        expires_at = None if answer.expires_in is None else asked_at + answer.expires_in
        return token_of(answer.token, asked_at, expires_at=expires_at, extensions=self._extensions)


class _Answer:
    """The used fields of a token endpoint's response. The token is sealed at once."""

    __slots__ = ("expires_in", "token", "token_type")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.token = (
            Secret(fields["access_token"]) if isinstance(fields.get("access_token"), str) else None
        )
        kind = fields.get("token_type")
        self.token_type = kind if isinstance(kind, str) else None
        self.expires_in = _seconds(fields.get("expires_in"))


def _seconds(value: Any) -> float | None:
    """Return a number of seconds, which some providers send as text, or None for other values."""
    try:
        seconds = float(value) if isinstance(value, str | int | float) else -1.0
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < 1e9 else None


class TokenFile:
    """Source of tokens that reads a file at each login."""

    def __init__(
        self, path: Path, extensions: Mapping[str, str], *, clock: Clock = time.time
    ) -> None:
        self._path = path
        self._extensions = extensions
        self._clock = clock

    async def __call__(self) -> Token:
        """Return the current token of the file. Raises OAuthTokenError."""
        try:
            with anyio.fail_after(CALL_SECONDS):
                value = await in_thread(lambda: file_secret(self._path, "token file"))
        except TimeoutError as error:
            if isinstance(error, OAuthTokenError):
                raise
            raise OAuthTokenUnavailableError(
                f"reading the token file {printable(str(self._path))} took longer than "
                f"{CALL_SECONDS:g} s"
            ) from error
        return token_of(value, self._clock(), extensions=self._extensions)


class UnsecuredTokens:
    """Source of tokens without a signature."""

    def __init__(
        self,
        claims: Mapping[str, Any],
        life: float,
        extensions: Mapping[str, str],
        *,
        clock: Clock = time.time,
    ) -> None:
        self._claims = claims
        self._life = life
        self._extensions = extensions
        self._clock = clock

    async def __call__(self) -> Token:
        """Return a new token."""
        now = self._clock()
        # A broker with a slow clock refuses a token from the future.
        claims = {"iat": int(now) - 1, "exp": int(now) + self._life, **self._claims}
        return token_of(Secret(unsecured(claims)), now, extensions=self._extensions)
