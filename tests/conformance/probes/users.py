"""SCRAM users and delegation tokens, created and used."""

from __future__ import annotations

import base64
import hashlib
import time

from kohort.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.broker.security.logins import Scram
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.logins import authenticate, handshake, login, state
from tests.conformance.session import READY_S, Session, wait_for
from tests.conformance.wire import EXPIRED_S, EXPIRY_MS, Connection

SALT = bytes(range(20))
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
Renewer = CreateDelegationTokenRequest.CreatableRenewers
DAY_MS = 86_400_000
# How far the clocks of a broker and of this process may be apart.
CLOCK_MS = 60_000


def _upsertion(user: str, number: int, password: str, iterations: int = 4096) -> Upsertion:
    name = "sha512" if number == 2 else "sha256"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, max(iterations, 1))
    return Upsertion(
        name=user, mechanism=number, iterations=iterations, salt=SALT, salted_password=salted
    )


def _alter(session: Session, *changes: Upsertion | Deletion) -> object:
    request = AlterUserScramCredentialsRequest(
        upsertions=[each for each in changes if isinstance(each, Upsertion)],
        deletions=[each for each in changes if isinstance(each, Deletion)],
    )
    answer = session.ask(request, 0)
    return sorted((each.user, each.error_code, bool(each.error_message)) for each in answer.results)


def _scram(connection: Connection, number: int, user: str, password: str, more: str = "") -> object:
    """Log in and return the error code, and whether the broker proved that it knows
    the password.
    """
    mechanism = MECHANISMS[number]
    handshake(connection, mechanism)
    scram = Scram(mechanism, user, password, more)
    first = authenticate(connection, scram.first())
    assert isinstance(first, tuple)
    if first[0]:
        return first[0]
    final = authenticate(connection, scram.final(first[2]))
    assert isinstance(final, tuple)
    return final[0], scram.is_proved_by(final[2])


def _until(session: Session, number: int, user: str, password: str, wanted: object) -> object:
    """Log in until the result is ``wanted``, because Apache Kafka applies a change
    a moment later.
    """
    deadline = time.monotonic() + READY_S
    while True:
        seen = _scram(session.connect_to("SASL_PLAINTEXT"), number, user, password)
        if seen == wanted or time.monotonic() > deadline:
            return seen
        time.sleep(0.05)


@probe("7.4", secured=True)
def scram_users_are_set_and_deleted(session: Session) -> Observations:
    """Set and delete a user, and log in by the mechanism."""
    user = session.name("user")
    for number in MECHANISMS:
        yield f"set {number}", _alter(session, _upsertion(user, number, "one", 8192))
        yield f"login {number}", _until(session, number, user, "one", (0, True))
        yield f"changed {number}", _alter(session, _upsertion(user, number, "two"))
        yield f"login again {number}", _until(session, number, user, "two", (0, True))
        yield f"deleted {number}", _alter(session, Deletion(name=user, mechanism=number))
        yield f"refused {number}", _until(session, number, user, "two", 58)


@probe("7.4", secured=True)
def changes_of_scram_users_that_are_refused(session: Session) -> Observations:
    """Change users with invalid iterations, mechanisms and names, and one user twice."""
    user = session.name("user")
    good = _upsertion(user, 1, "x")
    changes: dict[str, tuple[Upsertion | Deletion, ...]] = {
        "few": (_upsertion(user, 1, "x", 4095),),
        "many": (_upsertion(user, 1, "x", 16_385),),
        "no name": (_upsertion("", 1, "x"),),
        "mechanism 0": (_upsertion(user, 0, "x"),),
        "mechanism 3": (_upsertion(user, 3, "x"),),
        "delete": (Deletion(name=user, mechanism=1),),
        "delete by mechanism 3": (Deletion(name=user, mechanism=3),),
        "delete nobody": (Deletion(name="", mechanism=1),),
        "twice": (good, good),
        "set and delete": (good, Deletion(name=user, mechanism=1)),
        "both mechanisms": (good, _upsertion(user, 2, "x")),
        "one bad": (good, _upsertion(user, 2, "x", 1)),
        "nothing": (),
    }
    for name, some in changes.items():
        yield name, _alter(session, *some)
    yield "none is there", _describe(session, user)


def _describe(session: Session, *users: str) -> object:
    name = DescribeUserScramCredentialsRequest.UserName
    request = DescribeUserScramCredentialsRequest(users=[name(name=user) for user in users])
    answer = session.ask(request, 0)
    return (
        answer.error_code,
        answer.error_message,
        sorted(
            (
                found.user,
                found.error_code,
                bool(found.error_message),
                sorted((info.mechanism, info.iterations) for info in found.credential_infos),
            )
            for found in answer.results
        ),
    )


@probe("7.4", secured=True)
def scram_users_are_described(session: Session) -> Observations:
    """Describe mechanisms and iterations, unknown users, and a user twice."""
    yield "one", _describe(session, "admin")
    yield "unknown", _describe(session, session.name("nobody"))
    yield "twice", _describe(session, "admin", "admin")
    yield "some", _describe(session, "admin", "", "bob")


def _alice(session: Session, user: str = "alice") -> Connection:
    connection = session.connect_to("SASL_PLAINTEXT")
    login(connection, user)
    return connection


@probe("7.2d", secured=True)
def delegation_tokens_are_created(session: Session) -> Observations:
    """Create tokens in each version, for too long, with renewers, and for other owners."""
    connection, admin = _alice(session), _alice(session, "admin")
    for version in (1, 2, 3):
        for life in (-1, 60_000, 10 * DAY_MS):
            answer = connection.ask(CreateDelegationTokenRequest(max_lifetime_ms=life), version)
            yield f"{version} {life}", _created(answer)
    for name, kind in (("bob", "User"), ("bob", "Group")):
        request = CreateDelegationTokenRequest(
            max_lifetime_ms=-1, renewers=[Renewer(principal_type=kind, principal_name=name)]
        )
        yield f"renewer {kind}", _created(connection.ask(request, 2))
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", max_lifetime_ms=-1
    )
    yield "owner", _created(connection.ask(request, 3))
    for kind, name in (("User", "bob"), ("Group", "alice")):
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind, owner_principal_name=name, max_lifetime_ms=-1
        )
        yield f"owner {kind} {name}", _created(connection.ask(request, 3))
        yield f"owner {kind} {name} by admin", _created(admin.ask(request, 3))
    for listener in ("PLAINTEXT", "SSL"):
        request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        yield listener, _created(session.connect_to(listener).ask(request, 3))


def _created(answer: object) -> object:
    life = answer.max_timestamp_ms - answer.issue_timestamp_ms  # type: ignore[attr-defined]
    expiry = answer.expiry_timestamp_ms - answer.issue_timestamp_ms  # type: ignore[attr-defined]
    return {
        **{
            name: getattr(answer, name)
            for name in (
                "error_code",
                "principal_type",
                "principal_name",
                "token_requester_principal_type",
                "token_requester_principal_name",
            )
        },
        "life": life,
        "expiry": expiry,
        "id": len(answer.token_id),  # type: ignore[attr-defined]
        "hmac": len(answer.hmac),  # type: ignore[attr-defined]
    }


@probe("7.2d", secured=True)
def delegation_tokens_log_in(session: Session) -> Observations:
    """Log in by both mechanisms, with the extension, as the owner. A token creates no token."""
    owner = _alice(session)
    token = owner.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)
    password = base64.b64encode(bytes(token.hmac)).decode()
    for number, mechanism in MECHANISMS.items():
        for more in ("", ",tokenauth=true"):
            connection = session.connect_to("SASL_PLAINTEXT")
            if more:
                deadline = time.monotonic() + READY_S
                while True:
                    connection = session.connect_to("SASL_PLAINTEXT")
                    seen = _scram(connection, number, token.token_id, password, more)
                    if seen == (0, True) or time.monotonic() > deadline:
                        break
                    time.sleep(0.05)
            else:
                seen = _scram(connection, number, token.token_id, password)
            yield f"{mechanism} {more}", seen
        answer = connection.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)
        yield f"{mechanism} asks", (answer.error_code, answer.principal_name)
        yield f"{mechanism} goes on", state(connection)


@probe("7.2d", secured=True)
def delegation_tokens_are_renewed_and_expired(session: Session) -> Observations:
    """Renew and expire tokens as the owner and as others, later and now, and unknown ones."""
    owner, other = _alice(session), _alice(session, "bob")
    token = owner.ask(CreateDelegationTokenRequest(max_lifetime_ms=3_600_000), 2)
    hmac = bytes(token.hmac)
    deadline = time.monotonic() + READY_S
    renew = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=600_000)
    while owner.ask(renew, 2).error_code == 62 and time.monotonic() < deadline:
        time.sleep(0.05)
    begin = int(time.time() * 1000)

    def end(expiry: int, period: int) -> str:
        """Return how the broker computed the expiry, at some time since ``begin``.

        A cluster's wall clock advances with the event loop's, so a wall clock that is
        set meanwhile is no longer that of this process.
        """
        if expiry == token.max_timestamp_ms:
            return "with the life"
        now = int(time.time() * 1000)
        if begin - CLOCK_MS <= expiry - period <= now + CLOCK_MS:
            return "after the period"
        return f"{expiry}"

    for version in (1, 2):
        for period in (-1, 600_000, DAY_MS):
            renew = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period)
            answer = owner.ask(renew, version)
            yield (
                f"renewed {version} {period}",
                (answer.error_code, end(answer.expiry_timestamp_ms, period)),
            )
    yield "renewed by another", other.ask(renew, 2)
    unknown = RenewDelegationTokenRequest(hmac=b"unknown", renew_period_ms=1)
    yield "unknown renewed", owner.ask(unknown, 2)
    yield "renewed without a login", session.ask(renew, 2)
    for version in (1, 2):
        expire = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=600_000)
        ended = owner.ask(expire, version)
        yield f"expired {version}", (ended.error_code, end(ended.expiry_timestamp_ms, 600_000))
    yield "expired by another", other.ask(expire, 2)
    unknown_one = ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=1)
    yield "unknown expired", owner.ask(unknown_one, 2)
    yield "expired without a login", session.ask(expire, 2)
    at_once = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    yield "ended", owner.ask(at_once, 2)
    while owner.ask(at_once, 2).error_code == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield "ended again", owner.ask(at_once, 2).error_code


@probe("7.2d", secured=True)
def delegation_tokens_are_described(session: Session) -> Observations:
    """Describe tokens as the owner and as others, in each version, and without a login."""
    owner, other = _alice(session), _alice(session, "bob")
    token = owner.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)

    def own(connection: Connection, version: int, owners: list[Owner] | None) -> object:
        answer = connection.ask(DescribeDelegationTokenRequest(owners=owners), version)
        found = [each for each in answer.tokens if each.token_id == token.token_id]
        return answer.error_code, [
            (
                each.principal_type,
                each.principal_name,
                each.token_requester_principal_type,
                each.token_requester_principal_name,
                each.max_timestamp - each.issue_timestamp,
                bytes(each.hmac) == bytes(token.hmac),
                [renewer.principal_name for renewer in each.renewers],
            )
            for each in found
        ]

    deadline = time.monotonic() + READY_S
    while own(owner, 2, None) == (0, []) and time.monotonic() < deadline:
        time.sleep(0.05)
    alice = [Owner(principal_type="User", principal_name="alice")]
    for version in (1, 2, 3):
        yield f"all {version}", own(owner, version, None)
        yield f"of alice {version}", own(owner, version, alice)
        yield f"of none {version}", own(owner, version, [])
        yield f"by another {version}", own(other, version, None)
    yield "without a login", own(session.connect_to("PLAINTEXT"), 3, None)


@probe("7.2d", slow=True, secured=True)
def delegation_tokens_that_are_over(session: Session) -> Observations:
    """Renew a token after its life, and log in with it. Both are refused."""
    owner = _alice(session)
    token = owner.ask(CreateDelegationTokenRequest(max_lifetime_ms=EXPIRY_MS), 2)
    yield "created", (token.error_code, token.expiry_timestamp_ms == token.max_timestamp_ms)
    hmac = bytes(token.hmac)

    def is_known() -> bool:
        renewed = owner.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
        answer = owner.ask(DescribeDelegationTokenRequest(owners=None), 3)
        known = token.token_id in [each.token_id for each in answer.tokens]
        return renewed.error_code == 0 and known

    wait_for(is_known, "the token is known")
    time.sleep(EXPIRED_S)
    yield "renewed", owner.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1), 2)
    expire = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=1)
    yield "expired", owner.ask(expire, 2)
    answer = owner.ask(DescribeDelegationTokenRequest(owners=None), 3)
    yield "described", token.token_id in [each.token_id for each in answer.tokens]
    password = base64.b64encode(hmac).decode()
    connection = session.connect_to("SASL_PLAINTEXT")
    yield "login", _scram(connection, 1, token.token_id, password, ",tokenauth=true")
    end = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    yield "ended", owner.ask(end, 2).error_code
