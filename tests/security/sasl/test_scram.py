"""SCRAM: exchanges recorded with Apache Kafka, and messages that a client must not accept."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kohort.config import Secret
from kohort.errors import SaslServerError, SecurityError
from kohort.security.sasl._credentials import Credentials, CredentialsSource
from kohort.security.sasl._scram import HASHES, ScramExchange, ScramKeys, ScramMechanism

pytestmark = pytest.mark.anyio

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "scram_exchanges.json").read_text())
NONCE = "kohort-nonce"
SALT = base64.b64encode(b"a salt").decode()


def exchange(
    nonce: str = NONCE,
    username: str = "alice",
    password: str = "alice-secret",
    mechanism: str = "SCRAM-SHA-256",
    **options: Any,
) -> ScramExchange:
    """Return a login with a fixed nonce."""
    credentials = Credentials(username, Secret(password))
    return ScramExchange(ScramKeys(HASHES[mechanism], credentials), nonce, **options)


@pytest.mark.parametrize(
    "vector",
    VECTORS["vectors"],
    ids=lambda each: f"{each['username']!r}-{each['mechanism'][-3:]}",
)
async def test_exchange_matches_apache_kafka(vector: dict[str, Any]) -> None:
    login = exchange(
        vector["client_nonce"], vector["username"], vector["password"], vector["mechanism"]
    )
    assert login.first().decode() == vector["client_first"]
    final = await login.next(vector["server_first"].encode())
    assert final is not None
    assert final.decode() == vector["client_final"]
    assert await login.next(vector["server_final"].encode()) is None


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda each: repr(each["username"]))
async def test_refused_user_is_sent_as_it_is(vector: dict[str, Any]) -> None:
    login = exchange(username=vector["username"], password=vector["password"])
    assert f"n={vector['username']}".encode() in login.first()
    text = login.refusal(vector["answer"])
    assert ("ASCII" in text) is not vector["username"].isascii()
    assert vector["password"] not in text or len(vector["password"]) < 4


async def test_delegation_token_is_announced() -> None:
    assert exchange(is_token=True).first() == b"n,,n=alice,r=kohort-nonce,tokenauth=true"


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_user_name_is_refused_when_scram_cannot_write_it(name: str) -> None:
    with pytest.raises(SecurityError, match="user name"):
        exchange(username=name)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (f"r={NONCE},s={SALT},i=4096", "does not continue the nonce"),
        (f"r=other,s={SALT},i=4096", "does not continue the nonce"),
        (f"r=x{NONCE}y,s={SALT},i=4096", "does not continue the nonce"),
        (f"r={NONCE}é,s={SALT},i=4096", "not printable ASCII"),
        (f"r={NONCE} x,s={SALT},i=4096", "not printable ASCII"),
        (f"r={NONCE}x,s=,i=4096", "salt of a SCRAM challenge is empty"),
        (f"r={NONCE}x,s=A*==,i=4096", "salt of a SCRAM message is not base64"),
        (f"r={NONCE}x,s=QUJ,i=4096", "salt of a SCRAM message is not base64"),
        (f"r={NONCE}x,s={SALT}\n,i=4096", "salt of a SCRAM message is not base64"),
        (f"r={NONCE}x,s={SALT},i=1", "asks for 1 SCRAM iterations"),
        (f"r={NONCE}x,s={SALT},i=4095", "asks for 4095"),
        (f"r={NONCE}x,s={SALT},i=1000001", "asks for 1000001"),
        (f"r={NONCE}x,s={SALT},i=-4096", "not a number"),
        (f"r={NONCE}x,s={SALT},i=4_096", "not a number"),
        (f"r={NONCE}x,s={SALT},i=٤٠٩٦", "not a number"),
        (f"r={NONCE}x,s={SALT},i={'9' * 5000}", "not a number"),
        (f"r={NONCE}x,s={SALT}", "no nonce, salt and iterations"),
        (f"s={SALT},r={NONCE}x,i=4096", "no nonce, salt and iterations"),
        (f"m=ext,r={NONCE}x,s={SALT},i=4096", "extension that is not known"),
        ("e=unknown-user\n", r"refused: unknown-user\\n"),
        ("", "no nonce, salt and iterations"),
        ("x" * 10_000, "has 10000 bytes"),
    ],
)
async def test_challenge_is_refused_when_it_breaks_the_rules(challenge: str, text: str) -> None:
    with pytest.raises(SaslServerError, match=text):
        await exchange().next(challenge.encode())


async def test_challenge_is_refused_when_it_is_not_text() -> None:
    with pytest.raises(SaslServerError, match="not UTF-8"):
        await exchange().next(b"r=\xff")


@pytest.mark.parametrize(
    ("final", "text"),
    [
        (b"", "without a proof"),
        (b"ok", "without a proof"),
        (b"v", "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"v=" + base64.b64encode(b"x" * 32), "signature is wrong"),
        (b"v=*", "signature of a SCRAM message is not base64"),
        (b"e=invalid-proof", "refused: invalid-proof"),
        (b"\xff", "not UTF-8"),
    ],
)
async def test_login_is_refused_when_the_proof_is_missing(final: bytes, text: str) -> None:
    login = exchange()
    await login.next(f"r={NONCE}x,s={SALT},i=4096".encode())
    with pytest.raises(SaslServerError, match=text):
        await login.next(final)


async def test_proof_of_another_login_is_refused() -> None:
    vector = VECTORS["vectors"][0]
    login = exchange(
        vector["client_nonce"], vector["username"], vector["password"], vector["mechanism"]
    )
    changed = vector["server_first"].replace(",s=", "x,s=")
    await login.next(changed.encode())
    with pytest.raises(SaslServerError, match="does not know the password"):
        await login.next(vector["server_final"].encode())


async def test_many_iterations_run_in_a_worker_thread() -> None:
    threads = []
    derive = ScramKeys._derive

    def seen(self: ScramKeys, salt: bytes, iterations: int) -> Any:
        threads.append(threading.current_thread())
        return derive(self, salt, iterations)

    with patch.object(ScramKeys, "_derive", seen):
        keys = ScramKeys("sha256", Credentials("a", Secret("b")))
        await keys.get(b"salt", 4096)
        await keys.get(b"salt", 5000)
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


async def test_keys_are_derived_once_for_each_salt() -> None:
    mechanism = ScramMechanism(
        "SCRAM-SHA-256", CredentialsSource(Credentials("a", Secret("b")), None)
    )
    first, second = await mechanism.login("h"), await mechanism.login("h")
    assert first.keys is second.keys
    assert first.first() != second.first()  # other nonces
    one = await first.keys.get(b"salt", 4096)
    assert await second.keys.get(b"salt", 4096) is one
    for number in range(40):
        await first.keys.get(b"%d" % number, 4096)
    assert len(first.keys._known) == 16


async def test_keys_are_forgotten_when_the_password_changes() -> None:
    passwords = ["one", "two"]
    mechanism = ScramMechanism(
        "SCRAM-SHA-512", CredentialsSource(None, lambda: ("a", passwords.pop(0)))
    )
    first, second = await mechanism.login("h"), await mechanism.login("h")
    assert first.keys is not second.keys


def test_keys_show_no_value() -> None:
    keys = ScramKeys("sha256", Credentials("alice", Secret("planted")))
    derived = keys._derive(b"salt", 4096)
    for each in (keys, derived, keys.credentials):
        assert "planted" not in repr(each)
        assert repr(each).startswith("<")
