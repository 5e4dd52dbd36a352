"""Messages of each mechanism: every field, good and bad."""

from __future__ import annotations

import base64
import math
import time

from tests.broker.security.logins import NONCE, Scram, bearer
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.logins import authenticate, handshake, plain, state
from tests.conformance.session import Session
from tests.conformance.wire import EXPIRED_S, EXPIRY_MS, Connection, ConnectionClosed
from tests.support.secure_kafka import SCRAM, password_of
from tests.support.tokens import unsecured

SKEW_S = 30
"""Largest difference of clocks."""
PLAIN_TOKENS = {
    "good": plain("admin"),
    "authorization id": plain("admin", authorization_id="admin"),
    "other authorization id": plain("admin", authorization_id="bob"),
    "wrong password": plain("admin", "no"),
    "unknown user": plain("nobody", "no"),
    "wrong password, other id": plain("admin", "no", "bob"),
    "no user": plain("", "x"),
    "no password": plain("admin", ""),
    "empty": b"",
    "one part": b"admin",
    "two parts": b"admin\0x",
    "four parts": b"\0admin\0admin-secret\0",
    "no UTF-8": b"\0admin\0\xff\xfe",
}


def _answer(connection: Connection, token: bytes) -> object:
    try:
        return authenticate(connection, token)
    except ConnectionClosed:
        return "closed"


@probe("7.2a", secured=True)
def messages_of_plain(session: Session) -> Observations:
    """Send good and bad messages of PLAIN, with the text of each error."""
    for name, token in PLAIN_TOKENS.items():
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "PLAIN")
        yield name, _answer(connection, token)
        yield f"{name} afterwards", state(connection)


FIRST = {
    "good": "n,,n=admin,r=abc",
    "authorization id": "n,a=admin,n=admin,r=abc",
    "other authorization id": "n,a=bob,n=admin,r=abc",
    "y": "y,,n=admin,r=abc",
    "channel binding": "p=tls-unique,,n=admin,r=abc",
    "reserved": "n,,m=x,n=admin,r=abc",
    "extension": "n,,n=admin,r=abc,foo=bar",
    "extension without a value": "n,,n=admin,r=abc,foo=",
    "token": "n,,n=admin,r=abc,tokenauth=true",
    "no token": "n,,n=admin,r=abc,tokenauth=false",
    "unknown user": "n,,n=nobody,r=abc",
    "no user": "n,,n=,r=abc",
    "no nonce": "n,,n=admin,r=",
    "space in the nonce": "n,,n=admin,r=a b",
    "tilde in the nonce": "n,,n=admin,r=a~b",
    "equals sign in the name": "n,,n=ad=min,r=abc",
    "escape in the name": "n,,n=ad=2Cmin,r=abc",
    "lower escape in the name": "n,,n=ad=2cmin,r=abc",
    "not ASCII": "n,,n=Jürgen,r=abc",
    "order": "n,,r=abc,n=admin",
    "no header": "n=admin,r=abc",
    "garbage": "garbage",
    "empty": "",
    "newline": "n,,n=admin,r=abc\n",
}


def _shape(answer: object, nonce: str) -> object:
    """Return the server's first message, with checks in place of its nonce and salt."""
    if not isinstance(answer, tuple) or not answer[2]:
        return answer
    parts = dict(each.split("=", 1) for each in answer[2].decode().split(","))
    own = parts["r"].removeprefix(nonce)
    return {
        "fields": list(parts),
        "nonce": parts["r"].startswith(nonce) and len(own) >= 20 and own.isalnum(),
        "salt": len(base64.b64decode(parts["s"], validate=True)) >= 20,
        "iterations": parts["i"],
        "lifetime": answer[3],
    }


@probe("7.2b", secured=True)
def first_messages_of_scram(session: Session) -> Observations:
    """Send each field of the client's first message, good and bad."""
    for name, message in FIRST.items():
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "SCRAM-SHA-256")
        yield (
            name,
            _shape(_answer(connection, message.encode()), "abc" if "~" not in message else "a~b"),
        )


def _finals(scram: Scram, first: bytes) -> dict[str, bytes]:
    good = scram.final(first)
    head, _, proof = good.rpartition(b",p=")
    return {
        "good": good,
        "other nonce": scram.final(first, nonce=NONCE),
        "changed nonce": good.replace(b",r=", b",r=x"),
        "wrong proof": head + b",p=" + base64.b64encode(bytes(len(base64.b64decode(proof)))),
        "short proof": head + b",p=" + base64.b64encode(b"x" * 6),
        "empty proof": head + b",p=",
        "no base64": head + b",p=*",
        "no proof": head,
        "other channel": good.replace(b"c=biws", b"c=eSws"),
        "extension": good.replace(b",p=", b",foo=bar,p="),
        "more": good + b",x=y",
        "garbage": b"garbage",
        "empty": b"",
    }


@probe("7.2b", secured=True)
def final_messages_of_scram(session: Session) -> Observations:
    """Send each field of the client's final message, for both hashes."""
    for mechanism in SCRAM:
        names = list(_finals(Scram(mechanism, "a", "b"), b"r=abc,s=AAAA,i=1"))
        for name in names:
            connection = session.connect_to("SASL_PLAINTEXT")
            handshake(connection, mechanism)
            scram = Scram(mechanism, "admin", password_of("admin"))
            first = authenticate(connection, scram.first())
            assert isinstance(first, tuple)
            answer = _answer(connection, _finals(scram, first[2])[name])
            if isinstance(answer, tuple) and answer[2]:
                answer = answer[0], len(answer[2]), name != "good" or scram.is_proved_by(answer[2])
            yield f"{mechanism} {name}", answer
            yield f"{mechanism} {name} afterwards", state(connection)


@probe("7.2b", secured=True)
def scram_on_a_listener_whose_sessions_end(session: Session) -> Observations:
    """Log in by SCRAM with a session limit. Only the last response has the lifetime."""
    connection = session.connect_to("REAUTH")
    for turn in range(2):
        handshake(connection, "SCRAM-SHA-512")
        scram = Scram("SCRAM-SHA-512", "alice", password_of("alice"))
        first = authenticate(connection, scram.first())
        assert isinstance(first, tuple)
        yield f"first {turn}", first[3]
        final = authenticate(connection, scram.final(first[2]))
        assert isinstance(final, tuple)
        yield f"final {turn}", (final[0], scram.is_proved_by(final[2]), final[3])
    yield "afterwards", state(connection)


def _told(connection: Connection, token: bytes) -> object:
    """Return the response with a rough lifetime, and what follows a challenge.

    It is the same for a machine that stalls for a minute and a half, or whose clock steps back by
    some seconds.
    """
    answer = _answer(connection, token)
    if not isinstance(answer, tuple):
        return answer
    rough = math.ceil((answer[3] - 5_000) / 100_000)
    if answer[0] == 0 and answer[2]:
        return answer[:3], rough, _answer(connection, b"\x01")
    return answer[:3], rough, state(connection)


MESSAGES = {
    "good": bearer("TOKEN"),
    "authorization id": bearer("TOKEN", "alice"),
    "other authorization id": bearer("TOKEN", "root"),
    "extension": bearer("TOKEN", more="\x01traceId=123"),
    "two extensions": bearer("TOKEN", more="\x01a=b\x01c=d e"),
    "digit in a key": bearer("TOKEN", more="\x01trace1=1"),
    "empty value": bearer("TOKEN", more="\x01trace="),
    "auth twice": bearer("TOKEN", more="\x01auth=1"),
    "lower case": bearer("TOKEN").replace(b"Bearer", b"bearer"),
    "other scheme": bearer("TOKEN").replace(b"Bearer", b"Basic"),
    "two spaces": bearer("TOKEN").replace(b"Bearer ", b"Bearer  "),
    "no auth": b"n,,\x01a=b\x01\x01",
    "no header": b"auth=Bearer TOKEN",
    "y": b"y,,\x01auth=Bearer TOKEN\x01\x01",
    "one separator": b"n,,\x01auth=Bearer TOKEN\x01",
    "control": b"\x01",
    "empty": b"",
}


@probe("7.2c", secured=True)
def messages_of_oauthbearer(session: Session) -> Observations:
    """Send the framing of a token, good and bad."""
    for name, message in MESSAGES.items():
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "OAUTHBEARER")
        token = unsecured("alice").encode()
        yield name, _told(connection, message.replace(b"TOKEN", token))


@probe("7.2c", secured=True)
def unsecured_tokens(session: Session) -> Observations:
    """Send each claim of an unsecured token, good and bad."""
    now = time.time()
    tokens = {
        "good": unsecured("alice"),
        "scope": unsecured("alice", scope="a b"),
        "scopes": unsecured("alice", scope=["a", "b"]),
        "no iat": unsecured("alice", iat=None),
        "iat is text": unsecured("alice", iat="x"),
        "iat later": unsecured("alice", iat=now + 600),
        "iat after exp": unsecured("alice", 50, iat=now + 55),
        "no exp": unsecured("alice", exp=None),
        "exp is text": unsecured("alice", exp="x"),
        "exp is true": unsecured("alice", exp=True),
        "expired": unsecured("alice", -1),
        "no sub": unsecured("alice", sub=None),
        "empty sub": unsecured("alice", sub=" "),
        "sub is a number": unsecured("alice", sub=1),
        "signed": session.secured.signing_key.token("alice"),
        "no dots": "abc",
        "one dot": "a.b",
        "no JSON": "YQ.YQ.",
    }
    for name, token in tokens.items():
        connection = session.connect_to("SASL_PLAINTEXT")
        handshake(connection, "OAUTHBEARER")
        yield name, _told(connection, bearer(token))


@probe("7.2c", secured=True)
def signed_tokens(session: Session) -> Observations:
    """Send each claim of a signed token, good and bad."""
    key, now = session.secured.signing_key, time.time()
    tokens = {
        "good": key.token("app"),
        "90 s": key.token("app", 90),
        "expired 10 s ago, issued after that": key.token("app", -10),
        "expired 60 s ago": key.token("app", -60, iat=now - 100),
        "no exp": key.token("app", exp=None),
        "no sub": key.token("app", sub=None),
        "no iat": key.token("app", iat=None),
        "scope": key.token("app", scope="a b"),
        "scopes": key.token("app", scope=["a", "b"]),
        "other audience": key.token("app", aud="x"),
        "audiences": key.token("app", aud=["x", "kafka"]),
        "no audience": key.token("app", aud=None),
        "other issuer": key.token("app", iss="x"),
        "no issuer": key.token("app", iss=None),
        "iat within the skew": key.token("app", iat=now + 15),
        "iat later": key.token("app", iat=now + 600),
        "iat after exp": key.token("app", 5, iat=now + 10),
        "nbf within the skew": key.token("app", nbf=now + 15),
        "nbf later": key.token("app", nbf=now + 600),
        "unsecured": unsecured("app"),
        "garbage": "abc",
        "two parts": "a.b",
        "changed": key.token("app")[:-8] + "AAAAAAAA",
    }
    for name, token in tokens.items():
        connection = session.connect_to("OAUTH")
        handshake(connection, "OAUTHBEARER")
        yield name, _told(connection, bearer(token))
    while True:
        connection = session.connect_to("OAUTH")
        begin = time.monotonic()
        handshake(connection, "OAUTHBEARER")
        told = _told(connection, bearer(key.token("app", -10, iat=now - 100)))
        if time.monotonic() - begin < SKEW_S / 2:
            break
    yield "expired 10 s ago", told


@probe("7.2c", secured=True)
def a_second_token_after_the_challenge(session: Session) -> Observations:
    """Send a good token after the challenge, which logs in."""
    connection = session.connect_to("SASL_PLAINTEXT")
    handshake(connection, "OAUTHBEARER")
    yield "bad", _answer(connection, bearer(unsecured("alice", -1)))
    answer = authenticate(connection, bearer(unsecured("alice")))
    assert isinstance(answer, tuple)
    yield "good", (answer[:3], state(connection))


@probe("7.2c", slow=True, secured=True)
def sessions_of_tokens(session: Session) -> Observations:
    """Let a token expire, which ends the session even without a session limit."""
    connection = session.connect_to("SASL_PLAINTEXT")
    handshake(connection, "OAUTHBEARER")
    answer = authenticate(connection, bearer(unsecured("alice", EXPIRY_MS / 1000)))
    assert isinstance(answer, tuple)
    yield "lifetime", 0 < answer[3] <= EXPIRY_MS
    yield "open", state(connection)
    yield "idle", connection.is_parked(EXPIRED_S)
    yield "over", state(connection)
    limited = session.connect_to("REAUTH")
    handshake(limited, "OAUTHBEARER")
    answer = authenticate(limited, bearer(unsecured("alice", 300)))
    assert isinstance(answer, tuple)
    yield "the smaller one", answer[3]
