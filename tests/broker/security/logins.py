"""Logins over a raw connection: each step of a mechanism is a call of its method."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
import struct

from kohort.protocol import Buffer
from kohort.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kohort.testing import Cluster
from tests.broker.raw import Raw

NONCE = "abcdefghijklmnop"


class RawLogin(Raw):
    """A connection to one listener of a cluster, or to the addresses of one."""

    def __init__(
        self,
        cluster: Cluster | str,
        listener: str = "SASL_PLAINTEXT",
        node: int = 1,
        context: ssl.SSLContext | None = None,
        hostname: str = "localhost",
    ) -> None:
        if isinstance(cluster, Cluster):
            cluster = cluster.bootstrap_servers_of(listener)
        super().__init__(cluster, node)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=hostname)

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        answer.auth_bytes = bytes(answer.auth_bytes)
        return answer

    def login(self, user: str, password: str, version: int = 2) -> SaslAuthenticateResponse:
        """Login with PLAIN."""
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(plain(user, password), version)

    def raw_token(self, token: bytes) -> bytes:
        """Send a token without a header and return the response."""
        self.send_bytes(struct.pack(">i", len(token)) + token)
        return self.receive_frame()

    def is_open(self) -> bool:
        """True if the broker responds to a request."""
        try:
            return self.ask(MetadataRequest(topics=[]), 12).error_code == 0
        except (EOFError, OSError):
            return False

    def versions(self, version: int = 3, name: str = "raw") -> int:
        """Request the versions and return the error code."""
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        return self.ask(request, version).error_code


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    """Return the one message of PLAIN."""
    return f"{authorization_id}\0{user}\0{password}".encode()


def bearer(token: str, authorization_id: str = "", more: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}{more}\x01\x01".encode()


class Scram:
    """A client's side of SCRAM."""

    def __init__(self, mechanism: str, user: str, password: str, extensions: str = "") -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r={NONCE}{extensions}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, server_first: Buffer, nonce: str = "") -> bytes:
        message = bytes(server_first).decode()
        parts = dict(each.split("=", 1) for each in message.split(","))
        salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        key = hmac.digest(salted, b"Client Key", self._hash)
        without_proof = f"c=biws,r={nonce or parts['r']}"
        signed = f"{self.bare},{message},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_proved_by(self, server_final: Buffer) -> bool:
        """True if the broker has proved that it knows the password."""
        return server_final == b"v=" + base64.b64encode(self._signature)
