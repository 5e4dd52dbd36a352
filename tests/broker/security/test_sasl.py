"""Logins at a broker: allowed requests, the checks of each mechanism, and the end of sessions."""

from __future__ import annotations

import base64
import json
import logging
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.security import SCRAM_HASHES, ScramCredential
from kohort.broker.security._credentials import CredentialStore
from kohort.broker.security._delegation import DelegationTokens
from kohort.broker.security._mechanism import CredentialError
from kohort.broker.security._scram import ScramServer
from kohort.errors import InvalidOptionError
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kohort.testing import Cluster, Listener, Security, TokenKey, unsecured_token
from tests.broker.security.logins import NONCE, RawLogin, Scram, bearer, plain

MECHANISMS = ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USERS = {"alice": "alice-secret", "bob": "bob-secret", "a,b=c": "p,w=1"}
EXCHANGES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "scram_exchanges.json").read_text()
)
FAILED = 58
INVALID = b'{"status":"invalid_token"}'
KEY = TokenKey(audience="kafka", issuer="https://idp.test")


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    listeners = (
        "PLAINTEXT",
        "SASL_PLAINTEXT",
        Listener("SASL_PLAINTEXT", "REAUTH", session_lifetime_ms=60_000),
        Listener("SASL_PLAINTEXT", "SHORT", session_lifetime_ms=1),
        Listener("SASL_PLAINTEXT", "OAUTH", mechanisms=["OAUTHBEARER"], tokens=KEY),
    )
    with Cluster(topics={"t": 1}, security=Security(listeners, USERS)) as running:
        yield running


@pytest.fixture
def raw(secured: Cluster) -> Iterator[RawLogin]:
    with RawLogin(secured) as connection:
        yield connection


# The order of steps before the login


@pytest.mark.parametrize("version", [0, 1])
def test_handshake_lists_all_mechanisms(raw: RawLogin, version: int) -> None:
    answer = raw.handshake("PLAIN", version)
    assert (answer.error_code, sorted(answer.mechanisms)) == (0, MECHANISMS)


def test_versions_are_answered_once_before_the_login(raw: RawLogin) -> None:
    assert raw.versions() == 0
    with pytest.raises(EOFError):
        raw.versions()


def test_versions_may_be_asked_again_after_an_error(raw: RawLogin) -> None:
    raw.send_frame(struct.pack(">hhih", 18, 99, 1, 1) + b"x\0\2x\2y\0")
    assert raw.receive_frame()[4:6] == b"\0\x23"
    assert raw.versions(name="-bad-") == 42
    assert raw.versions() == 0
    assert raw.handshake("PLAIN").error_code == 0


def test_other_request_before_the_handshake_is_closed_on(raw: RawLogin) -> None:
    raw.send(MetadataRequest(topics=[]), 12)
    assert raw.is_closed()


def test_authenticate_before_the_handshake_is_closed_on(raw: RawLogin) -> None:
    raw.versions()
    raw.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")), 2)
    assert raw.is_closed()


def test_unknown_mechanism_is_answered_with_the_list(raw: RawLogin) -> None:
    answer = raw.handshake("FOO")
    assert (answer.error_code, sorted(answer.mechanisms)) == (33, MECHANISMS)
    assert raw.is_closed()


def test_second_handshake_is_refused_and_closed(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    answer = raw.handshake("SCRAM-SHA-256")
    assert (answer.error_code, answer.mechanisms) == (34, [])
    assert raw.is_closed()


def test_versions_after_the_handshake_are_refused(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    assert raw.versions() == 34
    assert raw.is_closed()


def test_other_request_after_the_handshake_is_refused(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert raw.ask(request, 0).error_code == 34
    assert raw.is_closed()


@pytest.mark.parametrize("version", [1, 13])
def test_metadata_within_a_login_names_nothing(raw: RawLogin, version: int) -> None:
    raw.handshake("PLAIN")
    answer = raw.ask(MetadataRequest(topics=None), version)
    assert (answer.brokers, answer.topics, answer.controller_id) == ([], [], -1)
    assert answer.error_code == (34 if version == 13 else 0)
    assert raw.is_closed()


def test_produce_without_acks_within_a_login_is_closed_on(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    raw.send(ProduceRequest(acks=0, timeout_ms=100), 7)
    assert raw.is_closed()


def test_versions_with_a_short_header_are_closed_on(raw: RawLogin) -> None:
    raw.send_frame(struct.pack(">hhih", 18, 99, 1, -1))
    assert raw.is_closed()


def test_large_frame_before_the_login_is_closed_on(secured: Cluster) -> None:
    with RawLogin(secured) as raw:
        raw.handshake("PLAIN")
        raw.send_bytes(struct.pack(">i", 524_289))
        assert raw.is_closed()
    with RawLogin(secured) as raw:
        assert raw.login("alice", "alice-secret").error_code == 0
        raw.send_bytes(struct.pack(">i", 524_289) + bytes(100))
        assert not raw.has_answer(0.02)


def test_silence_after_the_handshake_keeps_the_connection(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    assert not raw.has_answer(0.05)
    assert raw.authenticate(plain("alice", "alice-secret")).error_code == 0


def test_listener_without_sasl_refuses_and_stays_open(secured: Cluster) -> None:
    with RawLogin(secured, "PLAINTEXT") as raw:
        answer = raw.handshake("PLAIN")
        assert (answer.error_code, answer.mechanisms) == (34, [])
        assert raw.authenticate(b"x").error_code == 34
        assert raw.is_open()


def test_listener_has_its_own_mechanisms(secured: Cluster) -> None:
    with RawLogin(secured, "OAUTH") as raw:
        answer = raw.handshake("PLAIN")
        assert (answer.error_code, answer.mechanisms) == (33, ["OAUTHBEARER"])


def test_metadata_names_the_listener_that_was_asked(secured: Cluster) -> None:
    for name in ("PLAINTEXT", "REAUTH"):
        with RawLogin(secured, name) as raw:
            if name == "REAUTH":
                raw.login("alice", "alice-secret")
            brokers = raw.ask(MetadataRequest(topics=[]), 12).brokers
            shown = f"{brokers[0].host}:{brokers[0].port}"
            assert shown == secured.bootstrap_servers_of(name)


# PLAIN


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_logs_in(raw: RawLogin, version: int) -> None:
    answer = raw.login("alice", "alice-secret", version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert raw.is_open()


def test_plain_takes_the_user_as_authorization_id(raw: RawLogin) -> None:
    raw.handshake("PLAIN")
    assert raw.authenticate(plain("alice", "alice-secret", "alice")).error_code == 0


REFUSED_PLAIN = {
    "wrong password": (plain("alice", "no"), "Authentication failed: Invalid username or password"),
    "unknown user": (plain("nobody", "x"), "Authentication failed: Invalid username or password"),
    "other authorization id": (
        plain("alice", "alice-secret", "bob"),
        "Authentication failed: Client requested an authorization id that is different from "
        "username",
    ),
    "one part": (
        b"alice",
        "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED_PLAIN)
def test_plain_is_refused_with_kafkas_message(raw: RawLogin, name: str) -> None:
    token, message = REFUSED_PLAIN[name]
    raw.handshake("PLAIN")
    answer = raw.authenticate(token)
    assert (answer.error_code, answer.error_message) == (FAILED, message)
    assert raw.is_closed()


def test_tokens_come_without_header_after_handshake_0(raw: RawLogin) -> None:
    raw.handshake("PLAIN", 0)
    assert raw.raw_token(plain("alice", "alice-secret")) == b""
    assert raw.is_open()


def test_wrong_token_without_header_is_closed_on(raw: RawLogin) -> None:
    raw.handshake("PLAIN", 0)
    with pytest.raises((EOFError, ConnectionResetError)):
        raw.raw_token(plain("alice", "no"))


def test_failed_login_is_answered_after_the_delay() -> None:
    security = Security(["SASL_PLAINTEXT"], USERS, failed_authentication_delay_ms=150)
    with Cluster(security=security) as cluster, RawLogin(cluster) as raw:
        started = time.monotonic()
        assert raw.login("alice", "no").error_code == FAILED
        assert time.monotonic() - started >= 0.15
        assert raw.is_closed()


# SCRAM


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize("user", USERS)
def test_scram_proves_both_sides(raw: RawLogin, mechanism: str, user: str) -> None:
    scram = Scram(mechanism, user, USERS[user])
    raw.handshake(mechanism)
    first = raw.authenticate(scram.first())
    assert (first.error_code, first.session_lifetime_ms) == (0, 0)
    final = raw.authenticate(scram.final(first.auth_bytes))
    assert final.error_code == 0
    assert scram.is_proved_by(final.auth_bytes)
    assert raw.is_open()


def test_scram_goes_on_without_headers(raw: RawLogin) -> None:
    scram = Scram("SCRAM-SHA-256", "alice", "alice-secret")
    raw.handshake("SCRAM-SHA-256", 0)
    final = raw.raw_token(scram.final(raw.raw_token(scram.first())))
    assert scram.is_proved_by(final)
    assert raw.is_open()


def test_scram_refuses_an_unknown_user_at_step_1(raw: RawLogin) -> None:
    raw.handshake("SCRAM-SHA-256")
    answer = raw.authenticate(Scram("SCRAM-SHA-256", "nobody", "x").first())
    assert (answer.error_code, answer.error_message) == (
        FAILED,
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256",
    )
    assert raw.is_closed()


def test_scram_refuses_a_wrong_password_at_step_2(raw: RawLogin) -> None:
    scram = Scram("SCRAM-SHA-512", "alice", "no")
    raw.handshake("SCRAM-SHA-512")
    answer = raw.authenticate(scram.final(raw.authenticate(scram.first()).auth_bytes))
    assert answer.error_code == FAILED
    assert raw.is_closed()


def test_scram_refuses_another_nonce_in_step_2(raw: RawLogin) -> None:
    """The proof matches that nonce, so only the comparison can reject it."""
    scram = Scram("SCRAM-SHA-256", "alice", "alice-secret")
    raw.handshake("SCRAM-SHA-256")
    first = raw.authenticate(scram.first()).auth_bytes
    assert raw.authenticate(scram.final(first, nonce=NONCE)).error_code == FAILED


BAD_FIRST = {
    "y": b"y,,n=alice,r=abc",
    "channel binding": b"p=tls-unique,,n=alice,r=abc",
    "other authorization id": b"n,a=bob,n=alice,r=abc",
    "garbage": b"garbage",
    "empty": b"",
    "not ascii": "n,,n=Jürgen,r=abc".encode(),
    "comma in the nonce": b"n,,n=alice,r=a,b",
    "equals sign": b"n,,n=al=ice,r=abc",
    "token that is none": b"n,,n=alice,r=abc,tokenauth=true",
}


@pytest.mark.parametrize("name", BAD_FIRST)
def test_scram_refuses_a_bad_first_message(raw: RawLogin, name: str) -> None:
    raw.handshake("SCRAM-SHA-256")
    assert raw.authenticate(BAD_FIRST[name]).error_code == FAILED
    assert raw.is_closed()


def test_scram_ignores_unknown_extensions(raw: RawLogin) -> None:
    scram = Scram("SCRAM-SHA-256", "alice", "alice-secret", ",foo=bar")
    raw.handshake("SCRAM-SHA-256")
    first = raw.authenticate(scram.first())
    assert raw.authenticate(scram.final(first.auth_bytes)).error_code == 0


def scram_server(vector: dict[str, Any], password: str, nonce: str) -> ScramServer:
    """Return a broker with the credentials of the broker of the vector."""
    name = SCRAM_HASHES[vector["mechanism"]]
    parts = dict(each.split("=", 1) for each in vector["server_first"].split(","))
    salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
    store = CredentialStore()
    credential = ScramCredential.of_password(name, password, salt, iterations)
    store.scram[vector["username"], vector["mechanism"]] = credential
    tokens = DelegationTokens(b"key", lambda: 0)
    return ScramServer(vector["mechanism"], store, tokens, lambda: nonce)


@pytest.mark.parametrize("vector", EXCHANGES["vectors"], ids=lambda v: v["client_nonce"])
def test_scram_answers_as_apache_kafka_did(vector: dict[str, Any]) -> None:
    parts = dict(each.split("=", 1) for each in vector["server_first"].split(","))
    nonce = parts["r"].removeprefix(vector["client_nonce"])
    server = scram_server(vector, vector["password"], nonce)
    assert server.evaluate(vector["client_first"].encode()) == vector["server_first"].encode()
    assert server.evaluate(vector["client_final"].encode()) == vector["server_final"].encode()
    assert server.identity is not None and server.identity.user == vector["username"]


def test_scram_server_refuses_another_password() -> None:
    vector = EXCHANGES["vectors"][0]
    parts = dict(each.split("=", 1) for each in vector["server_first"].split(","))
    server = scram_server(vector, "another", parts["r"].removeprefix(vector["client_nonce"]))
    server.evaluate(vector["client_first"].encode())
    with pytest.raises(CredentialError):
        server.evaluate(vector["client_final"].encode())
    assert server.identity is None


# OAUTHBEARER


def test_unsecured_token_logs_in_for_its_life(raw: RawLogin) -> None:
    raw.handshake("OAUTHBEARER")
    answer = raw.authenticate(bearer(unsecured_token("alice", 300)))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    # The token is dated by this process, its life counted by the cluster's clock.
    assert 240_000 < answer.session_lifetime_ms < 301_000
    assert raw.is_open()


BAD_TOKENS: dict[str, Callable[[], str]] = {
    "expired": lambda: unsecured_token("alice", -1),
    "no exp": lambda: unsecured_token("alice", exp=None),
    "exp is text": lambda: unsecured_token("alice", exp="soon"),
    "exp is endless": lambda: unsecured_token("alice", exp=float("inf")),
    "no sub": lambda: unsecured_token("alice", sub=None),
    "signed": lambda: KEY.token("alice"),
    "garbage": lambda: "abc",
    "two parts": lambda: "a.b",
    "no JSON": lambda: "YQ.YQ.",
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_bad_token_is_a_challenge_and_then_an_error(raw: RawLogin, name: str) -> None:
    raw.handshake("OAUTHBEARER")
    answer = raw.authenticate(bearer(BAD_TOKENS[name]()))
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, INVALID, 0)
    assert not raw.has_answer(0.02), "it waits for the client's answer"
    final = raw.authenticate(b"\x01")
    assert (final.error_code, final.error_message) == (FAILED, INVALID.decode())
    assert raw.is_closed()


def test_token_without_iat_is_taken(raw: RawLogin) -> None:
    raw.handshake("OAUTHBEARER")
    assert raw.authenticate(bearer(unsecured_token("alice", iat=None))).auth_bytes == b""


BAD_BEARERS = {
    "empty": b"",
    "no header": b"auth=Bearer x",
    "digit in a key": bearer("a.b.c", more="\x01trace1=1"),
    "auth twice": bearer("a.b.c", more="\x01auth=1"),
}


@pytest.mark.parametrize("name", BAD_BEARERS)
def test_oauthbearer_refuses_a_bad_message(raw: RawLogin, name: str) -> None:
    raw.handshake("OAUTHBEARER")
    answer = raw.authenticate(BAD_BEARERS[name])
    assert answer.error_code == FAILED
    assert str(answer.error_message).endswith("SASL mechanism OAUTHBEARER")
    assert raw.is_closed()


@pytest.mark.parametrize(("authorization_id", "code"), [("alice", 0), ("root", FAILED)])
def test_oauthbearer_compares_the_authorization_id(
    raw: RawLogin, authorization_id: str, code: int
) -> None:
    raw.handshake("OAUTHBEARER")
    token = bearer(unsecured_token("alice"), authorization_id, "\x01traceId=123")
    assert raw.authenticate(token).error_code == code


SIGNED: dict[str, tuple[Callable[[], str], bool]] = {
    "good": (lambda: KEY.token("app"), True),
    "audiences": (lambda: KEY.token("app", aud=["x", "kafka"]), True),
    "no scope": (lambda: KEY.token("app", scope=None), True),
    "expired within the skew": (lambda: KEY.token("app", -10, iat=time.time() - 100), True),
    "expired": (lambda: KEY.token("app", -60), False),
    "no exp": (lambda: KEY.token("app", exp=None), False),
    "no sub": (lambda: KEY.token("app", sub=None), False),
    "other audience": (lambda: KEY.token("app", aud="x"), False),
    "other issuer": (lambda: KEY.token("app", iss="x"), False),
    "issued later": (lambda: KEY.token("app", iat=time.time() + 600), False),
    "valid later": (lambda: KEY.token("app", nbf=time.time() + 600), False),
    "issued after its end": (lambda: KEY.token("app", 5, iat=time.time() + 10), False),
    "other key": (lambda: TokenKey(audience="kafka").token("app"), False),
    "unsecured": (lambda: unsecured_token("app"), False),
}


@pytest.mark.parametrize("name", SIGNED)
def test_signed_token_is_checked(secured: Cluster, name: str) -> None:
    make, is_validated = SIGNED[name]
    with RawLogin(secured, "OAUTH") as raw:
        raw.handshake("OAUTHBEARER")
        assert (raw.authenticate(bearer(make())).auth_bytes == b"") is is_validated


def test_token_expired_within_the_skew_ends_at_once(secured: Cluster) -> None:
    with RawLogin(secured, "OAUTH") as raw:
        raw.handshake("OAUTHBEARER")
        answer = raw.authenticate(bearer(KEY.token("app", -10, iat=time.time() - 100)))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert not raw.is_open()


def test_tokens_are_checked_by_a_function() -> None:
    def check(token: str, now: float) -> tuple[str, float]:
        if token != "open-sesame":
            raise ValueError
        return "ali", now + 60

    security = Security(["SASL_PLAINTEXT"], tokens=check)
    with Cluster(security=security) as cluster:
        for token, answer in (("open-sesame", b""), ("other", INVALID)):
            with RawLogin(cluster) as raw:
                raw.handshake("OAUTHBEARER")
                assert raw.authenticate(bearer(token)).auth_bytes == answer


# After the login


def test_login_again_without_sessions_is_refused(raw: RawLogin) -> None:
    raw.login("alice", "alice-secret")
    answer = raw.handshake("PLAIN")
    assert (answer.error_code, answer.mechanisms) == (34, [])
    again = raw.authenticate(plain("alice", "alice-secret"))
    assert (again.error_code, again.error_message) == (
        34,
        "SaslAuthenticate request received after successful authentication",
    )
    assert raw.is_open()


@pytest.mark.parametrize(("version", "shown"), [(0, 0), (1, 60_000), (2, 60_000)])
def test_lifetime_is_in_the_answer_from_version_1(
    secured: Cluster, version: int, shown: int
) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        assert raw.login("alice", "alice-secret", version).session_lifetime_ms == shown


def test_relogin_goes_on_and_the_third_is_too_early(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        for _ in range(2):
            assert raw.login("alice", "alice-secret").session_lifetime_ms == 60_000
            assert raw.is_open()
        assert raw.handshake("PLAIN").error_code == 34
        assert raw.is_open()


def test_relogin_is_pipelined_with_requests(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        raw.send(MetadataRequest(topics=[]), 12)
        raw.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        raw.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")), 2)
        raw.send(MetadataRequest(topics=[]), 12)
        codes = [raw.receive()[1].error_code for _ in range(4)]  # type: ignore[attr-defined]
        assert codes == [0, 0, 0, 0]


def test_relogin_of_another_user_fails(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        answer = raw.login("bob", "bob-secret")
        assert (answer.error_code, answer.error_message) == (
            FAILED,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        assert raw.is_closed()


def test_relogin_by_another_mechanism_is_closed_on(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        assert raw.handshake("SCRAM-SHA-256").error_code == 0
        scram = Scram("SCRAM-SHA-256", "alice", "alice-secret")
        raw.send(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
        assert raw.is_closed()


def test_request_within_a_relogin_is_refused(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        raw.handshake("PLAIN")
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert raw.ask(request, 0).error_code == 34
        assert raw.is_closed()


def test_large_frame_within_a_relogin_is_closed_on(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        raw.handshake("PLAIN")
        raw.send_bytes(struct.pack(">i", 524_289) + bytes(100))
        assert raw.is_closed()


def test_relogin_with_a_wrong_password_fails(secured: Cluster) -> None:
    with RawLogin(secured, "REAUTH") as raw:
        raw.login("alice", "alice-secret")
        assert raw.login("alice", "no").error_code == FAILED
        assert raw.is_closed()


def test_session_that_is_over_ends_at_the_next_request(secured: Cluster) -> None:
    with RawLogin(secured, "SHORT") as raw:
        assert raw.login("alice", "alice-secret").session_lifetime_ms == 1
        assert not raw.has_answer(0.05), "an idle connection stays open"
        assert not raw.is_open()


def test_session_that_is_over_takes_a_login(secured: Cluster) -> None:
    with RawLogin(secured, "SHORT") as raw:
        raw.login("alice", "alice-secret")
        assert not raw.has_answer(0.02)
        assert raw.login("alice", "alice-secret").error_code == 0


def test_password_changes_for_new_logins_only() -> None:
    with Cluster(security=Security(["SASL_PLAINTEXT"], USERS)) as cluster:
        with RawLogin(cluster) as old:
            old.login("alice", "alice-secret")
            cluster.set_password("alice", "new")
            cluster.remove_user("bob")
            assert old.is_open()
        for user, password, code in (
            ("alice", "alice-secret", FAILED),
            ("alice", "new", 0),
            ("bob", "bob-secret", FAILED),
        ):
            with RawLogin(cluster) as raw:
                assert raw.login(user, password).error_code == code


# The data that the cluster keeps and shows


def test_security_keeps_no_password(caplog: pytest.LogCaptureFixture) -> None:
    security = Security(["SASL_PLAINTEXT"], {"alice": "Pl4nted-secret"})
    with caplog.at_level(logging.DEBUG), Cluster(security=security) as cluster:
        with RawLogin(cluster) as raw:
            raw.login("alice", "Pl4nted-secret")
        shown = f"{security} {vars(security)} {vars(security.credentials)} {caplog.text}"
    assert "Pl4nted" not in shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: Security(["SASL"]),
        lambda: Security([]),
        lambda: Security(["SSL", "SSL"]),
        lambda: Security(mechanisms=["GSSAPI"]),
        lambda: Security(session_lifetime_ms=-1),
        lambda: Listener("SSL", client_auth="maybe"),
        lambda: Cluster(security=Security([Listener("SSL", port=1, name="a"), Listener(port=1)])),
    ],
)
def test_security_that_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(InvalidOptionError):
        make()


def test_versions_tell_the_same_before_the_login(secured: Cluster) -> None:
    shown = []
    for listener in ("PLAINTEXT", "SASL_PLAINTEXT"):
        with RawLogin(secured, listener) as raw:
            answer = raw.ask(ApiVersionsRequest(), 0)
            assert isinstance(answer, ApiVersionsResponse)
            shown.append([each.api_key for each in answer.api_keys])
    assert shown[0] == shown[1]
    assert {17, 36} <= set(shown[0])
