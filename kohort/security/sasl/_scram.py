"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Apache Kafka speaks it.

Kafka uses the UTF-8 bytes of a password without SASLprep. The client does all checks of the
mechanism, because otherwise an attacker in the place of the broker learns the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from kohort.config import SaslConfig
from kohort.errors import CredentialsUnavailableError, SaslServerError, SecurityError
from kohort.security._calls import in_thread
from kohort.security._secrets import printable, utf8_of
from kohort.security.sasl._credentials import Credentials, CredentialsSource

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 1_000_000
"""Most iterations. With more, a broker could keep a processor busy for minutes."""
MAX_ON_LOOP = 4_096
"""Iterations that take less than 10 ms. More of them run in a worker thread."""
MAX_MESSAGE = 8_192
MAX_KEYS = 16
"""Pairs of (salt, iterations) whose keys are kept. One user has one pair in a cluster."""
_HEADER = b"n,,"
_WITHOUT_BINDING = "c=biws"  # base64 of the header


class ScramKeys:
    """ClientKey and ServerKey of a user by (salt, iterations). Deriving them is slow."""

    def __init__(self, hash_name: str, credentials: Credentials) -> None:
        self.credentials = credentials
        self._hash = hash_name
        self._known: dict[tuple[bytes, int], _Keys] = {}

    async def get(self, salt: bytes, iterations: int) -> _Keys:
        """Return the keys, derived in a worker thread if that takes long."""
        keys = self._known.get((salt, iterations))
        if keys is None:
            if iterations <= MAX_ON_LOOP:
                keys = self._derive(salt, iterations)
            else:
                keys = await in_thread(lambda: self._derive(salt, iterations))
            while len(self._known) >= MAX_KEYS:
                del self._known[next(iter(self._known))]
            self._known[salt, iterations] = keys
        return keys

    def _derive(self, salt: bytes, iterations: int) -> _Keys:
        return _Keys(
            self._hash,
            hashlib.pbkdf2_hmac(self._hash, utf8_of(self.credentials.password), salt, iterations),
        )


class _Keys:
    """The two keys of SCRAM. Their values are in no local variable of a frame that can raise."""

    __slots__ = ("_client", "_hash", "_server")

    def __init__(self, hash_name: str, salted_password: bytes) -> None:
        self._hash = hash_name
        self._client = hmac.digest(salted_password, b"Client Key", hash_name)
        self._server = hmac.digest(salted_password, b"Server Key", hash_name)

    def proof(self, auth_message: bytes) -> bytes:
        """Return the base64 of the client's proof."""
        return base64.b64encode(
            bytes(
                one ^ other
                for one, other in zip(
                    self._client,
                    hmac.digest(
                        hashlib.new(self._hash, self._client).digest(), auth_message, self._hash
                    ),
                    strict=True,
                )
            )
        )

    def is_signature(self, auth_message: bytes, signature: bytes) -> bool:
        """True if the broker signed with the user's ServerKey."""
        return hmac.compare_digest(hmac.digest(self._server, auth_message, self._hash), signature)


class ScramExchange:
    """A login of two messages. It is complete only with the broker's signature."""

    def __init__(self, keys: ScramKeys, nonce: str, *, is_token: bool = False) -> None:
        self.keys = keys
        self.principal = printable(keys.credentials.username)
        self._nonce = nonce
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={_escaped_name(keys.credentials.username)},r={nonce}{extension}"
        self._derived: _Keys | None = None
        self._auth_message = b""
        self._complete = False

    def first(self) -> bytes:
        """Return the client-first-message."""
        return _HEADER + self._bare.encode()

    async def next(self, challenge: bytes) -> bytes | None:
        """Return the client-final-message, or None after a valid signature."""
        if len(challenge) > MAX_MESSAGE:
            raise SaslServerError(f"a SCRAM message has {len(challenge)} bytes")
        if self._derived is None:
            return await self._final(challenge)
        self._check(challenge)
        return None

    async def _final(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = _server_first(challenge, self._nonce)
        self._derived = await self.keys.get(salt, iterations)
        final = f"{_WITHOUT_BINDING},r={nonce}".encode()
        self._auth_message = b",".join((self._bare.encode(), challenge, final))
        return final + b",p=" + self._derived.proof(self._auth_message)

    def _check(self, challenge: bytes) -> None:
        """Raise SaslServerError unless the signature proves that the broker knows the password."""
        if self._complete:
            raise SaslServerError("a SCRAM login was continued after its end")
        name, _, value = _text(challenge).partition(",")[0].partition("=")
        if name == "e":
            raise SaslServerError(f"the SCRAM login was refused: {printable(value)}")
        if name != "v":
            raise SaslServerError(
                "the SCRAM login was accepted without a proof that the broker knows the password. "
                "It may not be the broker that it seems to be"
            )
        signature = _base64(value, "signature")
        if self._derived is None or not self._derived.is_signature(self._auth_message, signature):
            raise SaslServerError(
                "the SCRAM signature is wrong: the broker does not know the password. "
                "It may not be the broker that it seems to be"
            )
        self._complete = True

    def is_valid_for(self, seconds: float) -> bool:
        """Return True, because the broker decides how long credentials are valid."""
        return True

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the broker's limit."""
        return lifetime_ms / 1000 if lifetime_ms else None

    def shown(self, message: str) -> str:
        """Return the broker's message, escaped, without secrets."""
        return printable(message)

    def refusal(self, message: str) -> str:
        """Return the message, and the options to check."""
        text = self.shown(message)
        return f"{text}. Check the user name and the password, and that {self._stored()}"

    def _stored(self) -> str:
        if self.principal.isascii():
            return "the broker has SCRAM credentials of the user for this mechanism"
        return "the user name is ASCII, because Apache Kafka takes no other in SCRAM"


class ScramMechanism:
    """SCRAM for all connections of a client."""

    def __init__(self, name: str, source: CredentialsSource, *, is_token: bool = False) -> None:
        self.name = name
        self._source = source
        self._is_token = is_token
        self._keys: ScramKeys | None = None

    async def login(self, host: str) -> ScramExchange:
        """Return a login with the current credentials."""
        return self._exchange(await self._source.get())

    async def login_again(self, refused: object, host: str) -> ScramExchange | None:
        """Return a login with other credentials, or None if the source has none."""
        if not isinstance(refused, ScramExchange):
            return None
        other = await self._source.get_other(refused.keys.credentials)
        return None if other is None else self._exchange(other)

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no credentials come, or None."""
        return self._source.waiting.credentials_obstacle(now)

    def _exchange(self, credentials: Credentials) -> ScramExchange:
        if self._keys is None or self._keys.credentials != credentials:
            self._keys = ScramKeys(HASHES[self.name], credentials)
        return ScramExchange(self._keys, secrets.token_urlsafe(24), is_token=self._is_token)


def scram_mechanism(config: SaslConfig) -> ScramMechanism:
    """Return SCRAM with the credentials or the delegation token of the options."""
    assert config.sasl_mechanism is not None
    return ScramMechanism(
        config.sasl_mechanism, CredentialsSource.of(config), is_token=config.sasl_delegation_token
    )


def _escaped_name(name: str) -> str:
    """Return the user name as SCRAM writes it. SecurityError for one that it cannot write."""
    if not name or "\0" in name:
        raise SecurityError("SCRAM needs a user name without NUL characters")
    return name.replace("=", "=3D").replace(",", "=2C")


def _server_first(challenge: bytes, nonce: str) -> tuple[str, bytes, int]:
    """Return nonce, salt and iterations of a server-first-message, checked."""
    fields = _text(challenge).split(",")
    if fields[0].startswith("e="):
        raise SaslServerError(f"the SCRAM login was refused: {printable(fields[0][2:])}")
    if fields[0].startswith("m="):
        raise SaslServerError("the broker asks for a SCRAM extension that is not known")
    if len(fields) < 3 or [each[:2] for each in fields[:3]] != ["r=", "s=", "i="]:
        raise SaslServerError("a SCRAM challenge has no nonce, salt and iterations")
    whole, salt_text, count = (each[2:] for each in fields[:3])
    if not whole.startswith(nonce) or len(whole) == len(nonce):
        raise SaslServerError("a SCRAM challenge does not continue the nonce of this login")
    if not (whole.isascii() and whole.isprintable() and " " not in whole):
        raise SaslServerError("the nonce of a SCRAM challenge is not printable ASCII")
    salt = _base64(salt_text, "salt")
    if not salt:
        raise SaslServerError("the salt of a SCRAM challenge is empty")
    # isdecimal() is true of other digits, too, and int() takes "_" and spaces.
    if not (count.isascii() and count.isdecimal() and len(count) <= 9):
        raise SaslServerError("the iterations of a SCRAM challenge are not a number")
    iterations = int(count)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise SaslServerError(
            f"the broker asks for {iterations} SCRAM iterations: "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
        )
    return whole, salt, iterations


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslServerError("a SCRAM message is not UTF-8") from None


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslServerError(f"the {what} of a SCRAM message is not base64") from None
