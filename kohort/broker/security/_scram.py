"""SCRAM (RFC 5802) like Kafka's brokers, with ASCII names, without SASLprep and channel binding."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

from kohort.broker.security._credentials import SCRAM_HASHES, CredentialStore, ScramCredential
from kohort.broker.security._delegation import DelegationTokens
from kohort.broker.security._mechanism import (
    OTHER_AUTHORIZATION_ID,
    CredentialError,
    Identity,
    LoginBrokenError,
    LoginRefusedError,
)

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?:m={_VALUE},)?"
    rf"n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS})"
)
_FINAL = re.compile(
    rf"c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS},p=(?P<proof>{_BASE64})"
)


class ScramServer:
    """Login by a SCRAM mechanism, in two steps. ``nonce`` returns the server's part of the
    nonce.
    """

    def __init__(
        self,
        mechanism: str,
        store: CredentialStore,
        tokens: DelegationTokens,
        nonce: Callable[[], str],
    ) -> None:
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._store = store
        self._tokens = tokens
        self._make_nonce = nonce
        self._expected: Identity | None = None
        self._credential: ScramCredential | None = None
        self._first_bare = ""
        self._nonce = ""
        self._server_first = ""

    def evaluate(self, token: bytes) -> bytes:
        """Return the server's first message, then its final one."""
        message = token.decode(errors="replace")
        answer = self._first(message) if self._credential is None else self._final(message)
        return answer.encode()

    def _first(self, message: str) -> str:
        match = _FIRST.fullmatch(message)
        if match is None:
            raise CredentialError("not a first message of SCRAM")
        user = match["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._find(user, match["extensions"])
        if match["authzid"] not in (None, user):
            raise LoginRefusedError(OTHER_AUTHORIZATION_ID)
        self._credential = credential
        self._first_bare = f"n={match['name']},r={match['nonce']}{match['extensions']}"
        self._nonce = match["nonce"] + self._make_nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first

    def _find(self, user: str, extensions: str) -> ScramCredential:
        pairs = dict(each.split("=", 1) for each in extensions.split(",")[1:])
        if pairs.get("tokenauth", "").lower() != "true":
            credential = self._store.scram.get((user, self._mechanism))
            self._expected = Identity(user)
        else:
            token = self._tokens.find(user)
            credential = None if token is None else token.credential(self._mechanism)
            if token is not None:
                owner = token.owner.removeprefix("User:")
                self._expected = Identity(owner, token.expires_at_ms, by_token=True)
        if credential is None:
            raise CredentialError("unknown user")
        return credential

    def _final(self, message: str) -> str:
        credential = self._credential
        assert credential is not None
        match = _FINAL.fullmatch(message)
        if match is None:
            raise CredentialError("not a final message of SCRAM")
        # A client that may choose the nonce of its second step could replay an old exchange.
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise CredentialError("not the nonce of the first step")
        final = f"c={match['channel']},r={match['nonce']}"
        signed = f"{self._first_bare},{self._server_first},{final}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise CredentialError("the proof is not base64") from error
        if len(proof) != len(signature):
            raise LoginBrokenError("the proof has another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise CredentialError("the proof is wrong")
        self.identity = self._expected
        answer = hmac.digest(credential.server_key, signed, self._hash)
        return "v=" + base64.b64encode(answer).decode()
