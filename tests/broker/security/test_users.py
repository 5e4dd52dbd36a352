"""SCRAM users and delegation tokens that requests create, and logins with them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

import pytest

from kohort.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kohort.testing import Cluster, Security
from tests.broker.security.logins import RawLogin, Scram

SALT = bytes(range(20))
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


@pytest.fixture
def secured() -> Iterator[Cluster]:
    users = {"alice": "alice-secret", "bob": "bob-secret"}
    with Cluster(security=Security(["PLAINTEXT", "SASL_PLAINTEXT"], users)) as running:
        yield running


@pytest.fixture
def admin(secured: Cluster) -> Iterator[RawLogin]:
    with RawLogin(secured, "PLAINTEXT") as raw:
        yield raw


@pytest.fixture
def alice(secured: Cluster) -> Iterator[RawLogin]:
    with RawLogin(secured) as raw:
        raw.login("alice", "alice-secret")
        yield raw


def upsertion(user: str, number: int, password: str, iterations: int = 4096) -> Upsertion:
    name = "sha256" if number == 1 else "sha512"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, max(iterations, 1))
    return Upsertion(
        name=user, mechanism=number, iterations=iterations, salt=SALT, salted_password=salted
    )


def alter(raw: RawLogin, *changes: Upsertion | Deletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[each for each in changes if isinstance(each, Upsertion)],
        deletions=[each for each in changes if isinstance(each, Deletion)],
    )
    return {result.user: result.error_code for result in raw.ask(request, 0).results}


def login(cluster: Cluster, number: int, user: str, password: str, more: str = "") -> int:
    mechanism = MECHANISMS[number]
    scram = Scram(mechanism, user, password, more)
    with RawLogin(cluster) as raw:
        raw.handshake(mechanism)
        first = raw.authenticate(scram.first())
        if first.error_code:
            return first.error_code
        return raw.authenticate(scram.final(first.auth_bytes)).error_code


@pytest.mark.parametrize("number", MECHANISMS)
def test_user_that_a_request_made_logs_in(secured: Cluster, admin: RawLogin, number: int) -> None:
    assert alter(admin, upsertion("carol", number, "c-secret", 16_384)) == {"carol": 0}
    assert login(secured, number, "carol", "c-secret") == 0
    assert login(secured, number, "carol", "other") == 58
    assert login(secured, 3 - number, "carol", "c-secret") == 58
    assert alter(admin, Deletion(name="carol", mechanism=number)) == {"carol": 0}
    assert login(secured, number, "carol", "c-secret") == 58


def test_changed_scram_password_leaves_plain_alone(secured: Cluster, admin: RawLogin) -> None:
    alter(admin, upsertion("alice", 1, "new"))
    assert login(secured, 1, "alice", "new") == 0
    assert login(secured, 2, "alice", "alice-secret") == 0
    with RawLogin(secured) as raw:
        assert raw.login("alice", "alice-secret").error_code == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("carol", 1, "x", 4095), 93),
        (upsertion("carol", 1, "x", 16_385), 93),
        (upsertion("", 1, "x"), 93),
        (Upsertion(name="carol", mechanism=3, iterations=4096), 33),
        (Deletion(name="carol", mechanism=1), 91),
        (Deletion(name="alice", mechanism=0), 33),
    ],
)
def test_bad_change_of_a_user_is_refused(
    admin: RawLogin, change: Upsertion | Deletion, code: int
) -> None:
    assert alter(admin, change) == {change.name: code}


def test_user_is_changed_as_a_whole(secured: Cluster, admin: RawLogin) -> None:
    twice = upsertion("alice", 1, "new"), Deletion(name="alice", mechanism=1)
    bad = upsertion("bob", 1, "new"), upsertion("bob", 2, "new", 1)
    assert alter(admin, *twice, *bad) == {"alice": 92, "bob": 92}
    for user in ("alice", "bob"):
        assert login(secured, 1, user, f"{user}-secret") == 0


def test_users_are_described_without_their_keys(admin: RawLogin) -> None:
    def describe(*names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
        user = DescribeUserScramCredentialsRequest.UserName
        request = DescribeUserScramCredentialsRequest(users=[user(name=name) for name in names])
        return [
            (
                found.user,
                found.error_code,
                [(info.mechanism, info.iterations) for info in found.credential_infos],
            )
            for found in admin.ask(request, 0).results
        ]

    both = [(1, 4096), (2, 4096)]
    assert describe() == [("alice", 0, both), ("bob", 0, both)]
    assert describe("bob", "nobody") == [("bob", 0, both), ("nobody", 91, [])]
    assert describe("bob", "bob") == [("bob", 92, [])]


# Delegation tokens


def create(raw: RawLogin, version: int = 2) -> CreateDelegationTokenResponse:
    return raw.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)


def by_token(cluster: Cluster, number: int, token: CreateDelegationTokenResponse) -> int:
    password = base64.b64encode(bytes(token.hmac)).decode()
    return login(cluster, number, token.token_id, password, ",tokenauth=true")


@pytest.mark.parametrize("number", MECHANISMS)
def test_delegation_token_logs_in_as_its_owner(
    secured: Cluster, alice: RawLogin, number: int
) -> None:
    token = create(alice, version=3)
    assert (token.error_code, token.principal_name) == (0, "alice")
    assert token.token_requester_principal_name == "alice"
    assert token.issue_timestamp_ms < token.expiry_timestamp_ms < token.max_timestamp_ms
    mechanism = MECHANISMS[number]
    scram = Scram(
        mechanism,
        token.token_id,
        base64.b64encode(bytes(token.hmac)).decode(),
        ",tokenauth=true",
    )
    seen: list[str] = []
    with RawLogin(secured) as raw:
        raw.handshake(mechanism)
        first = raw.authenticate(scram.first())
        final = raw.authenticate(scram.final(first.auth_bytes))
        assert final.error_code == 0
        assert 0 < final.session_lifetime_ms <= 86_400_000, "that of the token"
        with secured.on("Metadata", lambda call: seen.append(call.principal)):
            assert raw.is_open()
        assert create(raw).error_code == 64, "a token must not request a token"
    assert seen == ["User:alice"]


def test_delegation_token_needs_its_extension(secured: Cluster, alice: RawLogin) -> None:
    token = create(alice)
    password = base64.b64encode(bytes(token.hmac)).decode()
    assert login(secured, 1, token.token_id, password) == 58
    assert by_token(secured, 1, token) == 0


def test_delegation_token_needs_a_login(admin: RawLogin) -> None:
    assert create(admin).error_code == 64
    assert admin.ask(DescribeDelegationTokenRequest(owners=None), 3).error_code == 64


def test_delegation_token_is_expired_by_its_owner(secured: Cluster, alice: RawLogin) -> None:
    token = create(alice)
    with RawLogin(secured) as bob:
        bob.login("bob", "bob-secret")
        assert bob.ask(ExpireDelegationTokenRequest(hmac=token.hmac), 2).error_code == 63
        assert bob.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens == []
    found = alice.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens
    assert [(each.token_id, each.principal_name) for each in found] == [(token.token_id, "alice")]
    renewed = alice.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000), 2)
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
    end = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
    assert alice.ask(end, 2).error_code == 0
    assert alice.ask(end, 2).error_code == 62
    assert by_token(secured, 1, token) == 58
