"""Tokens: what providers may return, how long a token is used, and OAUTHBEARER's messages."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from kohort.config import Secret
from kohort.errors import OAuthTokenError, OAuthTokenUnavailableError, SaslServerError
from kohort.security import _calls
from kohort.security.oauth._jwt import claims_of, shown_claims, unsecured
from kohort.security.oauth._tokens import Token, TokenSource, provider_source, token_of
from kohort.security.sasl._oauthbearer import OAuthBearerExchange, OAuthBearerMechanism
from tests.support.virtual import run_virtual_on

NOW = 1_000_000.0


def jwt(life: float = 300.0, now: float = NOW, **more: Any) -> str:
    claims = {"sub": "alice", "iat": now, "exp": now + life} | more
    return unsecured({name: value for name, value in claims.items() if value is not None})


def token(life: float = 300.0, now: float = NOW, **more: Any) -> Token:
    return token_of(Secret(jwt(life, now, **more)), now)


@pytest.fixture(params=["asyncio", "trio"])
def virtual(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """A function that runs a coroutine function on a clock that jumps, on both event loops."""
    return lambda main: run_virtual_on(request.param, main)


class Provider:
    """A token provider with these results."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.threads: list[threading.Thread] = []

    def token(self) -> Any:
        self.threads.append(threading.current_thread())
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


class Given:
    """A token object as some libraries return."""

    def __init__(self, token: str, expires_at: Any = None) -> None:
        self.token = token
        self.expires_at = expires_at


class WithExtensions(Provider):
    def extensions(self) -> dict[str, str]:
        return {"trace": "1"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("result", "expires_at"),
    [
        (jwt(), NOW + 300),
        (Secret(jwt()), NOW + 300),
        ((jwt(), NOW + 100), NOW + 100),
        ((jwt(), NOW + 500), NOW + 300),
        ((jwt(), (NOW + 1e9 + 100) * 1000), NOW + 300),
        (("opaque", NOW + 60), NOW + 60),
        (("opaque", None), None),
        ("opaque", None),
        (Given("opaque", NOW + 60), NOW + 60),
        (Given("opaque"), None),
        (Given("opaque", datetime.fromtimestamp(NOW + 60, UTC)), NOW + 60),
        (("opaque", datetime.fromtimestamp(NOW + 60, UTC).replace(tzinfo=None)), NOW + 60),
    ],
)
async def test_provider_result_is_understood(result: Any, expires_at: float | None) -> None:
    found = await provider_source(Provider(result), clock=lambda: NOW).get()
    assert found.expires_at == expires_at


@pytest.mark.anyio
async def test_provider_result_may_name_principal_and_extensions() -> None:
    source = provider_source(
        lambda: (jwt(), NOW + 60, "alice", {"logicalCluster": "lkc-1"}), clock=lambda: NOW
    )
    exchange = await OAuthBearerMechanism(source).login("h")
    first = exchange.first()
    assert first.startswith(b"n,a=alice,\x01auth=Bearer ")
    assert first.endswith(b"\x01logicalCluster=lkc-1\x01\x01")


@pytest.mark.anyio
async def test_provider_extensions_are_asked_for() -> None:
    source = provider_source(WithExtensions(jwt()), {"zone": "2"}, clock=lambda: NOW)
    assert (await source.get()).extensions == {"zone": "2", "trace": "1"}


@pytest.mark.anyio
async def test_provider_extensions_are_refused_if_they_are_no_mapping() -> None:
    source = provider_source(Provider((jwt(), None, "", ["planted"])), clock=lambda: NOW)
    with pytest.raises(OAuthTokenError, match="extensions that are list") as raised:
        await source.get()
    assert "planted" not in str(raised.value)


@pytest.mark.anyio
async def test_provider_runs_in_a_worker_thread() -> None:
    provider = Provider(jwt())
    await provider_source(provider, clock=lambda: NOW).get()
    assert provider.threads != [threading.current_thread()]


@pytest.mark.anyio
@pytest.mark.parametrize("result", [None, 7, b"planted", (), (None, 1), {"token": "a"}])
async def test_provider_result_is_refused_when_it_is_no_token(result: Any) -> None:
    with pytest.raises(OAuthTokenError, match=r"provider returned .*expected str") as raised:
        await provider_source(Provider(result), clock=lambda: NOW).get()
    assert not raised.value.retriable
    assert "planted" not in str(raised.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("", "is empty"),
        ("planted token", "has characters that no token has"),
        ("a\x01auth=b", "has characters that no token has"),
        ("a\n", "has characters that no token has"),
        ("=a", "has characters that no token has"),
        ("A" * 16_385, "more than 16384 characters"),
        (jwt(-10), "expired 10 s ago: it is not sent"),
        (("opaque", NOW - 3), "expired 3 s ago: it is not sent"),
    ],
)
async def test_token_is_not_sent_when_it_is_unusable(result: Any, text: str) -> None:
    with pytest.raises(OAuthTokenError, match=text) as raised:
        await provider_source(Provider(result), clock=lambda: NOW).get()
    assert type(raised.value) is OAuthTokenError
    assert "planted" not in str(raised.value)


@pytest.mark.anyio
async def test_token_is_not_sent_when_it_expires_at_once() -> None:
    provider = Provider(jwt(3600, NOW - 3598.5))
    with pytest.raises(OAuthTokenUnavailableError, match=r"expires in 1.5 s"):
        await provider_source(provider, clock=lambda: NOW).get()


@pytest.mark.anyio
async def test_provider_error_is_the_cause() -> None:
    with pytest.raises(OAuthTokenUnavailableError, match="raised OSError") as raised:
        await provider_source(Provider(OSError("planted"))).get()
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.retriable
    assert "planted" not in str(raised.value)


@pytest.mark.anyio
async def test_provider_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls.call, "__defaults__", (0.05,))
    release = threading.Event()
    with pytest.raises(OAuthTokenUnavailableError, match="did not return within"):
        await provider_source(lambda: release.wait(60)).get()
    release.set()


@pytest.mark.parametrize(
    "extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "\x01"}, {"a": 1}, {1: "a"}]
)
def test_extension_is_refused_when_it_cannot_be_sent(extensions: Any) -> None:
    with pytest.raises(OAuthTokenError, match="SASL extension"):
        token_of(Secret(jwt()), NOW, extensions=extensions)


def counting(life: float, made: list[float]) -> Callable[[], Awaitable[Token]]:
    """Return a function that creates tokens with the times of the loop's clock."""

    async def fetch() -> Token:
        await anyio.sleep(0.5)
        now = anyio.current_time()
        made.append(now)
        return token_of(Secret(jwt(life, now)), now)

    return fetch


def test_token_is_kept_until_80_percent_of_its_life(virtual: Any) -> None:
    async def main() -> None:
        made: list[float] = []
        source = TokenSource(counting(100, made), clock=anyio.current_time)
        first = await source.get()
        await anyio.sleep(79)
        assert await source.get() is first
        await anyio.sleep(1.1)
        assert await source.get() is not first

    virtual(main)


def test_token_is_replaced_with_two_seconds_left(virtual: Any) -> None:
    """A broker ends the session with the token and refuses nothing, so a login would not help."""

    async def main() -> None:
        made: list[float] = []
        source = TokenSource(counting(4, made), clock=anyio.current_time)
        await source.get()
        await anyio.sleep(1.9)
        await source.get()
        assert len(made) == 1
        await anyio.sleep(0.2)
        await source.get()
        assert len(made) == 2

    virtual(main)


def test_token_is_fetched_once_for_all_logins(virtual: Any) -> None:
    async def main() -> None:
        made: list[float] = []
        source = TokenSource(counting(100, made), clock=anyio.current_time)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(source.get)
        assert len(made) == 1

    virtual(main)


def test_token_is_fetched_by_another_login_when_one_is_cancelled(virtual: Any) -> None:
    async def main() -> None:
        made: list[float] = []
        source = TokenSource(counting(100, made), clock=anyio.current_time)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.get)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        await source.get()
        assert len(made) == 1

    virtual(main)


def test_opaque_token_is_asked_for_at_each_login(virtual: Any) -> None:
    async def main() -> None:
        asked: list[int] = []

        async def provide() -> str:
            asked.append(0)
            return "opaque"

        source = provider_source(provide)
        await source.get()
        await source.get()
        assert len(asked) == 2

    virtual(main)


def test_old_token_is_used_while_the_provider_fails(virtual: Any, caplog: Any) -> None:
    async def main() -> None:
        made: list[float] = []
        works = counting(100, made)
        asked: list[float] = []
        failing = False

        async def fetch() -> Token:
            asked.append(anyio.current_time())
            if failing:
                raise OAuthTokenUnavailableError("down")
            return await works()

        source = TokenSource(fetch, clock=anyio.current_time)
        first = await source.get()
        failing = True
        await anyio.sleep(85)
        for _ in range(120):
            assert await source.get() is first
            await anyio.sleep(0.1)
        assert len(asked) < 12  # with back-off
        await anyio.sleep(3)
        with pytest.raises(OAuthTokenUnavailableError, match="down"):
            await source.get()
        failing = False
        assert await source.get() is not first

    with caplog.at_level(logging.WARNING, "kohort.security"):
        virtual(main)
    assert "the OAuth token is not replaced yet: down" in caplog.text


def test_endpoint_is_retried_within_one_login(virtual: Any) -> None:
    async def main() -> None:
        asked: list[float] = []

        async def fetch() -> Token:
            asked.append(anyio.current_time())
            if len(asked) % 4:
                raise OAuthTokenUnavailableError("down")
            return token_of(Secret(jwt(100, asked[-1])), asked[-1])

        source = TokenSource(fetch, retry_seconds=10, clock=anyio.current_time)
        await source.get()
        assert [round(each - asked[0], 3) for each in asked] == [0, 0.1, 0.3, 0.7]

    virtual(main)


def test_endpoint_is_given_up_after_its_time(virtual: Any) -> None:
    async def main() -> None:
        async def fetch() -> Token:
            raise OAuthTokenUnavailableError("down")

        source = TokenSource(fetch, retry_seconds=10, clock=anyio.current_time)
        began = anyio.current_time()
        with pytest.raises(OAuthTokenUnavailableError):
            await source.get()
        assert 5 < anyio.current_time() - began <= 10

    virtual(main)


@pytest.mark.anyio
async def test_fatal_error_of_the_endpoint_is_not_retried() -> None:
    asked = []

    async def fetch() -> Token:
        asked.append(0)
        raise OAuthTokenError("invalid_client")

    with pytest.raises(OAuthTokenError):
        await TokenSource(fetch, retry_seconds=10).get()
    assert len(asked) == 1


def exchange(found: Token, now: float = NOW) -> OAuthBearerExchange:
    async def fetch() -> Token:
        return found

    return OAuthBearerExchange(TokenSource(fetch, clock=lambda: now), found, now)


def test_first_message_has_the_token() -> None:
    assert exchange(token()).first() == b"n,,\x01auth=Bearer %s\x01\x01" % jwt().encode()


def test_first_message_is_refused_if_token_expired_meanwhile() -> None:
    with pytest.raises(OAuthTokenError, match="expires in 1 s"):
        exchange(token(), NOW + 299).first()


@pytest.mark.anyio
async def test_refusal_is_answered_and_says_what_the_token_has() -> None:
    found = exchange(token(aud=["kafka", "x\n"], iss="https://idp", scope="read"))
    status = json.dumps({"status": "invalid_token"})
    assert await found.next(status.encode()) == b"\x01"
    text = found.refusal("")
    assert text == (
        "invalid_token. The token has sub=alice, aud=kafka x\\n, iss=https://idp, scope=read, "
        "and expires in 300 s"
    )
    with pytest.raises(SaslServerError, match="after it refused it"):
        await found.next(b"")


@pytest.mark.anyio
@pytest.mark.parametrize("status", [b"not json", b"[]", b"[" * 9000, b"\xff", b"{}"])
async def test_refusal_is_answered_when_its_status_is_odd(status: bytes) -> None:
    found = exchange(token())
    assert await found.next(status) == b"\x01"
    assert found.refusal("").isprintable()


def test_refusal_masks_the_token() -> None:
    assert jwt() not in exchange(token()).refusal(f"bad {jwt()}")


@pytest.mark.anyio
@pytest.mark.parametrize("kept", [10_000, 300, 100, 40])
@pytest.mark.parametrize(
    "form", ["TOKEN", "bad:TOKEN", '{"status":"TOKEN"}', '{"scope":"a TOKEN"}']
)
async def test_refusal_masks_a_long_token_that_is_cut(kept: int, form: str) -> None:
    value = "eyJ" + "0123456789abcdefghijKLMNOPQRST-_" * 30
    login = exchange(token_of(Secret(value), NOW))
    assert await login.next(form.replace("TOKEN", value[:kept]).encode())
    for text in (login.refusal(""), login.refusal(f"bad token {value[:kept]}")):
        assert "0123456789abcdefghij" not in text


@pytest.mark.anyio
async def test_refused_token_of_an_earlier_login_is_replaced() -> None:
    times = [NOW]

    async def fetch() -> Token:
        return token(now=times[0])

    mechanism = OAuthBearerMechanism(TokenSource(fetch, clock=lambda: times[0]))
    first = await mechanism.login("h")
    assert await mechanism.login_again(first, "h") is None  # the token was new
    times[0] += 10
    second = await mechanism.login("h")
    assert second.token is first.token
    third = await mechanism.login_again(second, "h")
    assert third is not None
    assert third.token is not first.token


@pytest.mark.parametrize(("now", "is_over"), [(NOW, False), (NOW + 299.4, True)])
def test_short_session_is_retried_when_the_token_ends(now: float, is_over: bool) -> None:
    """If most of its life is left, the clocks differ, and the next login would fail, too."""
    with pytest.raises(OAuthTokenError, match="accepted the OAuth token for 600 ms only") as caught:
        exchange(token(), now).session_seconds(600)
    assert caught.value.retriable is is_over


def test_session_lasts_as_long_as_the_broker_says() -> None:
    assert exchange(token()).session_seconds(4000) == 4
    assert exchange(token()).session_seconds(None) == 300


@pytest.mark.parametrize(
    "text",
    ["", "a", "a.b", "a.b.c", "a.e30", "..", "a.W10.c", f"a.{'W' * 5000}.c", "a.é.c", "a.bnVsbA.c"],
)
def test_claims_are_none_when_the_token_is_no_jwt(text: str) -> None:
    assert not claims_of(text)
    assert shown_claims(claims_of(text)) == "The token is no JWT"


@pytest.mark.parametrize("exp", ["x", None, True, [], 10**400, float("inf")])
def test_expiry_is_unknown_when_the_claim_is_odd(exp: Any) -> None:
    assert token(exp=exp).expires_at is None


def test_token_shows_no_value() -> None:
    found = token()
    assert jwt() not in repr(found)
    assert "eyJ" not in repr([getattr(found, name) for name in Token.__slots__])
