"""Logins with mutated messages of the broker: typed errors, and never a success."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from kohort.config import Secret
from kohort.errors import SaslServerError
from kohort.security.sasl._credentials import Credentials
from kohort.security.sasl._scram import ScramExchange, ScramKeys
from tests.transport.sasl_peer import PASSWORD, ScramServer

pytestmark = pytest.mark.anyio

ROUNDS = 3_000
PIECES = (b",", b"=", b"r=", b"s=", b"i=", b"v=", b"e=", b"m=", b"9", b"\0", b"\xff", b"\n", b"A")


def mutated(rng: random.Random, message: bytes) -> bytes:
    """Return the message with one to three changes."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(0, len(data))
        match rng.randrange(4):
            case 0:
                data[start:start] = rng.choice(PIECES)
            case 1:
                del data[start : start + rng.randint(1, 8)]
            case 2:
                data[start : start + 1] = bytes([rng.randrange(256)])
            case _:
                data[start:start] = data[start : start + rng.randint(1, 20)]
    return bytes(data)


async def test_scram_accepts_no_mutated_login() -> None:
    rng = random.Random(16)
    keys = ScramKeys("sha256", Credentials("alice", Secret(PASSWORD)))
    server = ScramServer()
    derived = keys._derive(server.salt, 4096)
    refused = accepted = 0
    with patch.object(ScramKeys, "_derive", lambda *_: derived):
        for _ in range(ROUNDS):
            exchange = ScramExchange(keys, "nonce")
            first = server.first(exchange.first())
            is_first = rng.random() < 0.5
            sent = mutated(rng, first) if is_first else first
            try:
                final = await exchange.next(sent)
                assert final is not None
                signature = server.final(final)
                if sent != first:
                    assert signature is None  # the broker detects the changed message
                    refused += 1
                    continue
                assert signature is not None
                changed = mutated(rng, signature)
                assert await exchange.next(changed) is None
                # An extension after the signature is allowed.
                assert changed.split(b",")[0] == signature
                accepted += 1
            except SaslServerError:
                refused += 1
    assert refused > ROUNDS * 0.9
    assert refused + accepted == ROUNDS
