"""The broker's side of SASL logins, independent of the client's, with steps that tests replace."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from kohort.config import Secret
from kohort.errors import KafkaError
from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    RequestHeader,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kohort.security import Mechanism
from kohort.security.sasl._credentials import Credentials, CredentialsSource
from kohort.security.sasl._plain import PlainMechanism
from kohort.security.sasl._scram import ScramMechanism
from kohort.transport import BrokerConnection
from tests.transport.peer import Network, Peer

OFFERED = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PASSWORD = "alice-secret"


def credentials(username: str = "alice", password: str = PASSWORD) -> CredentialsSource:
    """Return the credentials of alice."""
    return CredentialsSource(Credentials(username, Secret(password)), None)


def plain(provider: Callable[[], Any] | None = None) -> PlainMechanism:
    """Return PLAIN for alice, or for the user that a provider returns."""
    return PlainMechanism(credentials() if provider is None else CredentialsSource(None, provider))


def scram(name: str = "SCRAM-SHA-256") -> ScramMechanism:
    """Return SCRAM for alice."""
    return ScramMechanism(name, credentials())


def done(lifetime_ms: int = 0, data: bytes = b"") -> SaslAuthenticateResponse:
    """Return a step that the broker accepts."""
    return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)


def refused(message: str, code: int = 58) -> SaslAuthenticateResponse:
    """Return a login that the broker refuses."""
    return SaslAuthenticateResponse(error_code=code, error_message=message)


class ScramServer:
    """The broker's side of one SCRAM login."""

    def __init__(self, password: str = PASSWORD, iterations: int = 4096) -> None:
        self.salt = b"a salt of twenty byte"
        self.iterations = iterations
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self.salt, iterations)
        self.client_key = hmac.digest(salted, b"Client Key", "sha256")
        self.server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.client_first = self.server_first = b""

    def first(self, message: bytes) -> bytes:
        """Return the challenge."""
        self.client_first = message.removeprefix(b"n,,")
        nonce = self.client_first.split(b"r=")[1].split(b",")[0]
        salt = base64.b64encode(self.salt)
        self.server_first = b"r=%sserver,s=%s,i=%d" % (nonce, salt, self.iterations)
        return self.server_first

    def final(self, message: bytes) -> bytes | None:
        """Return the signature. None for a wrong proof."""
        without, _, proof = message.rpartition(b",p=")
        text = b",".join((self.client_first, self.server_first, without))
        stored = hashlib.sha256(self.client_key).digest()
        signature = hmac.digest(stored, text, "sha256")
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.sha256(key).digest() != stored:
            return None
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, text, "sha256"))


class SaslPeer:
    """A broker with the user alice that counts logins. Tests replace its responses."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.lifetime_ms = lifetime_ms
        self.requests: list[Request[Response]] = []
        self.versions: list[int] = []
        self.logins: list[tuple[float, bytes]] = []
        """Time and first message of each login."""
        self.connections = 0
        self.cut_off = 0
        """Connections that ended because a request came after the end of their session."""
        self.handshake: Callable[[int], SaslHandshakeResponse | None] = self._offer
        """Function from the number of a handshake on a connection to the response, or to None.
        """
        self.authenticate: Callable[[bytes], SaslAuthenticateResponse | None] = self._check
        self.delay = 0.0
        """Seconds that every other request takes."""

    def _offer(self, number: int) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(mechanisms=OFFERED)

    def _check(self, data: bytes) -> SaslAuthenticateResponse:
        if data in (b"\0alice\0" + PASSWORD.encode(),) or b"auth=Bearer" in data:
            return done(self.lifetime_ms)
        return refused("Authentication failed: Invalid username or password")

    async def serve(self, peer: Peer) -> None:
        """Serve one connection as a broker does, one request after the other."""
        self.connections += 1
        await peer.shake_hands()
        ends_at, is_logging_in, handshakes = 0.0, True, 0
        while (exchange := await peer.receive()) is not None:
            header, request = exchange
            self.requests.append(request)
            if isinstance(request, SaslHandshakeRequest):
                handshakes += 1
                response = self.handshake(handshakes)
                if response is not None:
                    await peer.reply(header, response)
                    is_logging_in = not response.error_code
                    if response.error_code == 33:
                        return
                continue
            if isinstance(request, SaslAuthenticateRequest):
                step = self._step(header, bytes(request.auth_bytes))
                if step is None:
                    continue
                await peer.reply(header, step)
                if step.error_code == 58:
                    return
                if not step.auth_bytes or step.auth_bytes[:2] == b"v=":
                    is_logging_in = False
                    lifetime = step.session_lifetime_ms
                    now = anyio.current_time()
                    ends_at = now + lifetime / 1000 if lifetime else float("inf")
                continue
            if is_logging_in or anyio.current_time() > ends_at:
                self.cut_off += 1
                return
            await anyio.sleep(self.delay)
            assert isinstance(request, HeartbeatRequest)
            await peer.reply(header, HeartbeatResponse(throttle_time_ms=int(request.group_id)))

    def _step(self, header: RequestHeader, data: bytes) -> SaslAuthenticateResponse | None:
        self.versions.append(header.request_api_version)
        if not data.startswith(b"c=") and data != b"\x01":
            self.logins.append((anyio.current_time(), data))
        return self.authenticate(data)


def scram_steps(password: str = PASSWORD, lifetime_ms: int = 0) -> Callable[[bytes], Any]:
    """Return the responses of a broker that has SCRAM credentials of alice."""
    servers: list[ScramServer] = []

    def answer(data: bytes) -> SaslAuthenticateResponse:
        if data.startswith(b"n,,"):
            servers.append(ScramServer(password))
            return done(0, servers[-1].first(data))
        signature = servers[-1].final(data)
        return refused("invalid credentials") if signature is None else done(lifetime_ms, signature)

    return answer


@asynccontextmanager
async def logged_in(
    broker: SaslPeer,
    mechanism: Mechanism,
    network_class: type[Network] = Network,
    **options: Any,
) -> AsyncIterator[BrokerConnection]:
    """Run a connection after its login. Check afterwards that no connection is open."""
    failure: KafkaError | None = None
    options = {"rng": random.Random(1), **options}
    async with anyio.create_task_group() as tasks:
        network = network_class(tasks)
        network.listen("b", 9092, broker.serve)
        try:
            connection = await BrokerConnection.open(
                network.connect, "b", 9092, mechanism=mechanism, **options
            )
        except KafkaError as error:
            failure = error
        else:
            tasks.start_soon(connection.run)
            yield connection
            await connection.aclose()
        assert network.open_ends == 0
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def heartbeat(connection: BrokerConnection, number: int = 0) -> int:
    """Send a request and return the number in its response."""
    response = await connection.request(HeartbeatRequest(group_id=str(number)), timeout=60)
    return response.throttle_time_ms
