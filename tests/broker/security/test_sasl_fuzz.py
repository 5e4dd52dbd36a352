"""Mutated messages of each mechanism, by seed: refused with one of three errors, never accepted."""

from __future__ import annotations

import random

import pytest

from kohort.broker.security import LoginBrokenError, unsecured_token
from kohort.broker.security._credentials import CredentialStore
from kohort.broker.security._delegation import DelegationTokens
from kohort.broker.security._mechanism import CredentialError, LoginRefusedError, ServerMechanism
from kohort.broker.security._oauthbearer import OAuthBearerServer
from kohort.broker.security._plain import PlainServer
from kohort.broker.security._scram import ScramServer
from kohort.broker.security._tokens import check_unsecured
from kohort.testing import TokenKey
from tests.broker.security.logins import Scram, bearer, plain

REFUSALS = (CredentialError, LoginBrokenError, LoginRefusedError)
STORE = CredentialStore({"alice": "alice-secret"})
NONCE = "abcdefghijklmnopqrstuvwxyz"
NOW = 1_800_000_000.0
LETTERS = b"\0\x01\n ,=.\"'{}\\azAZ09+/*\x7f\x80\xc3\xff"


def mutated(message: bytes, rng: random.Random) -> bytes:
    """Return the message with one to three bytes changed, inserted, removed or repeated."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(data):
            data[at] = rng.choice(LETTERS)
        elif how == 1:
            data.insert(at, rng.choice(LETTERS))
        elif how == 2:
            del data[at : at + rng.randint(1, 4)]
        elif how == 3:
            data[at:at] = data[at : at + rng.randint(1, 40)]
        else:
            del data[at:]
    return bytes(data)


def evaluate(server: ServerMechanism, message: bytes) -> bytes | None:
    """Return the response. None for a refusal."""
    try:
        return server.evaluate(message)
    except REFUSALS:
        return None


def scram_server() -> ScramServer:
    return ScramServer("SCRAM-SHA-256", STORE, DelegationTokens(b"k", lambda: 0), lambda: NONCE)


def test_mutated_plain_logs_in_by_the_password_alone() -> None:
    rng = random.Random(1)
    good = plain("alice", "alice-secret")
    for _ in range(1_000):
        message = mutated(good, rng)
        server = PlainServer(STORE)
        evaluate(server, message)
        assert server.identity is None or message.endswith(b"\0alice\0alice-secret")


def test_mutated_first_message_of_scram_logs_nobody_in() -> None:
    rng = random.Random(2)
    for _ in range(5_000):
        server = scram_server()
        answer = evaluate(server, mutated(b"n,,n=alice,r=abcdef,x=y,tokenauth=false", rng))
        assert answer is None or answer.startswith(b"r=")
        assert server.identity is None


def test_mutated_final_message_of_scram_needs_the_proof() -> None:
    rng = random.Random(3)
    scram = Scram("SCRAM-SHA-256", "alice", "alice-secret")
    first = scram_server().evaluate(scram.first())
    good = scram.final(first)
    proof = good.rpartition(b",p=")[2]
    for _ in range(5_000):
        server = scram_server()
        server.evaluate(scram.first())
        message = mutated(good, rng)
        evaluate(server, message)
        assert server.identity is None or message.endswith(b",p=" + proof)


@pytest.mark.parametrize("signed", [True, False])
def test_mutated_token_is_no_other_user(signed: bool) -> None:
    rng = random.Random(4)
    key = TokenKey()
    token = key.token("alice", exp=NOW + 60, iat=NOW)
    if not signed:
        token = unsecured_token("alice", exp=NOW + 60, iat=NOW)
    good = bearer(token, "alice", "\x01a=b")
    for _ in range(5_000):
        server = OAuthBearerServer(key if signed else check_unsecured, lambda: NOW)
        answer = evaluate(server, mutated(good, rng))
        assert answer in (None, b"", b'{"status":"invalid_token"}')
        assert server.identity is None or answer == b""
        assert not signed or server.identity is None or server.identity.user == "alice"
