"""Logins: every order of steps, sessions, and re-logins on live connections."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence

from kohort.protocol import Response
from kohort.protocol.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session
from tests.conformance.wire import EXPIRED_S, Connection, ConnectionClosed
from tests.support.secure_kafka import password_of

MAX_FRAME = 524_288
MIN_REAUTH_S = 1.0
"""Seconds after a re-login in which a broker refuses another one."""


def plain(user: str, password: str | None = None, authorization_id: str = "") -> bytes:
    """Return the message of PLAIN, with the right password by default."""
    password = password_of(user) if password is None else password
    return f"{authorization_id}\0{user}\0{password}".encode()


def handshake(connection: Connection, mechanism: str, version: int = 1) -> object:
    """Return error and mechanisms."""
    answer = connection.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return answer.error_code, sorted(answer.mechanisms)


def authenticate(connection: Connection, token: bytes, version: int = 2) -> object:
    """Return error, message, token, and lifetime."""
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    return (
        answer.error_code,
        f"text: {answer.error_message}",
        bytes(answer.auth_bytes),
        answer.session_lifetime_ms,
    )


def login(connection: Connection, user: str = "admin") -> object:
    """Log in by PLAIN."""
    handshake(connection, "PLAIN")
    return authenticate(connection, plain(user))


def state(connection: Connection) -> object:
    """Return the error code of a request, or "closed" if the connection ends."""
    try:
        return connection.ask(MetadataRequest(topics=[]), 9).error_code
    except ConnectionClosed:
        return "closed"


def _versions(connection: Connection) -> object:
    request = ApiVersionsRequest(client_software_name="p", client_software_version="1")
    return connection.ask(request, 3).error_code


def _bad_versions(connection: Connection) -> object:
    request = ApiVersionsRequest(client_software_name="-", client_software_version="1")
    return connection.ask(request, 3).error_code


def _heartbeat(connection: Connection) -> object:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return connection.ask(request, 0).error_code


STEPS: dict[str, Callable[[Connection], object]] = {
    "versions": _versions,
    "bad versions": _bad_versions,
    "handshake": lambda connection: handshake(connection, "PLAIN"),
    "handshake 0": lambda connection: handshake(connection, "PLAIN", 0),
    "unknown mechanism": lambda connection: handshake(connection, "FOO"),
    "other mechanism": lambda connection: handshake(connection, "SCRAM-SHA-256"),
    "good token": lambda connection: authenticate(connection, plain("admin")),
    "bad token": lambda connection: authenticate(connection, plain("admin", "no")),
    "metadata": state,
    "heartbeat": _heartbeat,
}
DEPTH = 4


def _follow(session: Session, listener: str, steps: Sequence[str], first: bool) -> object:
    """Return the response to the last step, after the others."""
    connection = session.connect_to(listener)
    if not first:
        login(connection)
    seen: object = None
    try:
        for step in steps:
            seen = STEPS[step](connection)
    except ConnectionClosed:
        seen = "closed"
    finally:
        connection.close()
    return seen


def _orders(
    session: Session, listener: str, first: bool, depth: int
) -> Iterator[tuple[str, object]]:
    """Yield the response to the last of some steps. Nothing follows where all ends closed."""
    prefixes: list[tuple[str, ...]] = [()]
    for _ in range(depth):
        longer = []
        for prefix in prefixes:
            every = [(*prefix, step) for step in STEPS]
            seen = {steps: _follow(session, listener, steps, first) for steps in every}
            if all(response == "closed" for response in seen.values()):
                continue
            for steps, response in seen.items():
                yield ", ".join(steps), response
                if steps[-1] in KEEPS:
                    longer.append(steps)
        prefixes = longer


KEEPS = {"versions", "bad versions", "handshake", "handshake 0", "other mechanism", "good token"}
"""Steps after which a connection may stay open. The others are tried as last ones."""


@probe("7.1a", "7.1b", "7.1c", slow=True, secured=True)
def orders_of_steps_before_a_login(session: Session) -> Observations:
    """Run every order of up to three steps on a new connection."""
    yield from _orders(session, "SASL_PLAINTEXT", True, 3)


@probe("7.1f", slow=True, secured=True)
def orders_of_steps_of_a_relogin(session: Session) -> Observations:
    """Run every order of up to two steps after a login whose session ends."""
    yield from _orders(session, "REAUTH", False, 2)


@probe("7.1a", slow=True, secured=True)
def orders_of_steps_where_sessions_do_not_end(session: Session) -> Observations:
    """Run every order of up to two steps after a login without a limit."""
    yield from _orders(session, "SASL_PLAINTEXT", False, 2)


@probe("7.1a", secured=True)
def other_requests_before_a_login(session: Session) -> Observations:
    """Send any other API, which ends the connection or gets an error response."""
    requests: dict[str, tuple[object, int]] = {
        "Metadata": (MetadataRequest(topics=[]), 12),
        "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
        "Heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        "Produce": (ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), 9),
    }
    for name, (request, version) in requests.items():
        for before in (False, True):
            connection = session.connect_to("SASL_PLAINTEXT")
            if before:
                handshake(connection, "PLAIN")
            connection.send(request, version)  # type: ignore[arg-type]
            answer = connection.outcome_of_response()
            if isinstance(answer, Response) and name == "Metadata":
                answer = "answered"  # each topic has an error, and there is no topic
            yield f"{name}, after a handshake: {before}", answer
            yield f"{name}, {before}, afterwards", connection.fate()


@probe("7.1b", secured=True)
def handshakes(session: Session) -> Observations:
    """Send enabled and disabled mechanisms, and names that differ slightly."""
    for version in (0, 1):
        for name in (
            "PLAIN",
            "SCRAM-SHA-256",
            "SCRAM-SHA-512",
            "OAUTHBEARER",
            "plain",
            "",
            "GSSAPI",
        ):
            connection = session.connect_to("SASL_PLAINTEXT")
            yield f"{name} {version}", handshake(connection, name, version)
    yield "one mechanism", handshake(session.connect_to("OAUTH"), "PLAIN")


@probe("7.1b", secured=True)
def logins_without_sasl(session: Session) -> Observations:
    """Send SaslHandshake to a listener without SASL, which refuses and stays open."""
    for listener in ("PLAINTEXT", "SSL"):
        connection = session.connect_to(listener)
        for version in (0, 1):
            yield f"{listener} handshake {version}", handshake(connection, "PLAIN", version)
        for version in (0, 1, 2):
            seen = authenticate(connection, plain("admin"), version)
            yield f"{listener} authenticate {version}", seen
        yield f"{listener} afterwards", state(connection)


@probe("7.1c", secured=True)
def logins_in_each_version(session: Session) -> Observations:
    """Send SaslAuthenticate 0 to 2, good and bad, with and without a session limit."""
    for listener in ("SASL_PLAINTEXT", "SASL_SSL", "REAUTH"):
        for version in (0, 1, 2):
            for password in (None, "no"):
                connection = session.connect_to(listener)
                handshake(connection, "PLAIN")
                seen = authenticate(connection, plain("alice", password), version)
                yield f"{listener} {version} {password}", seen
                yield f"{listener} {version} {password} afterwards", state(connection)


@probe("7.1c", secured=True)
def tokens_without_headers(session: Session) -> Observations:
    """Send tokens after SaslHandshake 0, where tokens and responses have no header."""
    for name, token in {"good": plain("admin"), "bad": plain("admin", "no"), "none": b""}.items():
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "PLAIN", 0)
        connection.send_frame(token)
        yield name, connection.outcome()
        yield f"{name} afterwards", state(connection)


@probe("7.1d", secured=True)
def large_frames_before_a_login(session: Session) -> Observations:
    """Send the largest frame, which is read, and one byte more, which ends the connection."""
    for size in (MAX_FRAME, MAX_FRAME + 1, -1, 1 << 30):
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "PLAIN")
        connection.send_bytes(struct.pack(">i", size))
        is_open = size == MAX_FRAME and connection.is_parked(0.5)
        yield str(size), "open" if is_open else connection.outcome()
    connection = session.connect_to("SASL_PLAINTEXT")
    login(connection)
    connection.send_bytes(struct.pack(">i", MAX_FRAME + 1))
    yield "after the login", "open" if connection.is_parked(0.5) else connection.outcome()


@probe("7.1e", secured=True)
def failed_logins_take_their_time(session: Session) -> Observations:
    """Fail logins. The response comes after connection.failed.authentication.delay.ms."""
    for name, mechanism, token in (
        ("password", "PLAIN", plain("admin", "no")),
        ("mechanism", "FOO", b""),
    ):
        connection = session.connect_to("SASL_PLAINTEXT")
        started = time.monotonic()
        handshake(connection, mechanism)
        if token:
            authenticate(connection, token)
        yield f"{name} late", time.monotonic() - started >= 0.1
        yield name, connection.outcome()


@probe("7.1f", secured=True)
def relogins(session: Session) -> Observations:
    """Log in again as the same user and as another, which is refused. A third login
    is too early.
    """
    for user in ("alice", "bob"):
        connection = session.connect_to("REAUTH")
        yield f"{user} first", login(connection, "alice")
        yield f"{user} again", login(connection, user)
        yield f"{user} afterwards", state(connection)
    while True:
        connection = session.connect_to("REAUTH")
        login(connection, "alice")
        begin = time.monotonic()
        login(connection, "alice")
        third = handshake(connection, "PLAIN")
        if time.monotonic() - begin < MIN_REAUTH_S:
            break
    yield "third", third
    yield "third afterwards", state(connection)


@probe("7.1f", secured=True)
def relogins_are_pipelined(session: Session) -> Observations:
    """Send requests before, in and after a re-login. They get responses in their order."""
    connection = session.connect_to("REAUTH")
    login(connection)
    connection.send(MetadataRequest(topics=[]), 9)
    connection.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    connection.send(SaslAuthenticateRequest(auth_bytes=plain("admin")), 2)
    connection.send(MetadataRequest(topics=[]), 9)
    yield "answers", [type(connection.receive()).__name__ for _ in range(4)]


@probe("7.1g", slow=True, secured=True)
def sessions_that_are_over(session: Session) -> Observations:
    """Exceed the session. A request ends the connection, a login continues it."""
    ended, resumed, late = (session.connect_to("REAUTH") for _ in range(3))
    for connection in (ended, resumed, late):
        yield f"login {connection is ended} {connection is resumed}", login(connection)
    login(late)
    handshake(late, "PLAIN")  # too early, and not counted
    yield "idle", ended.is_parked(EXPIRED_S)
    yield "a request", state(ended)
    yield "a login", login(resumed)
    yield "goes on", state(resumed)
    yield "a login after two", login(late)
    yield "goes on, too", state(late)


@probe("7.3c", secured=True)
def addresses_by_listener(session: Session) -> Observations:
    """Send Metadata and FindCoordinator, which return the ports of the listener."""
    for listener in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "REAUTH"):
        connection = session.connect_to(listener)
        if listener.startswith(("SASL", "REAUTH")):
            login(connection)
        brokers = connection.ask(MetadataRequest(topics=[]), 9).brokers
        yield listener, [{"port": broker.port} for broker in brokers]
