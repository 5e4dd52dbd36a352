"""Logins on a live connection: their times, the requests in flight, and failed logins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from kohort.config import Secret
from kohort.errors import KafkaConnectionError, KafkaError, OAuthTokenError
from kohort.protocol import Buffer
from kohort.protocol.messages import (
    HeartbeatRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kohort.security.oauth._jwt import unsecured
from kohort.security.oauth._tokens import TokenSource, token_of
from kohort.security.sasl._oauthbearer import OAuthBearerMechanism
from kohort.transport import ByteConnection, OneShot
from kohort.transport.connection._login_renewal import GatedPipeline
from kohort.transport.connection._pipeline import Pending
from tests.support.virtual import run_virtual_on
from tests.transport.peer import Network
from tests.transport.sasl_peer import (
    OFFERED,
    PASSWORD,
    SaslPeer,
    done,
    heartbeat,
    logged_in,
    plain,
    refused,
    scram,
    scram_steps,
)


@pytest.fixture(params=["asyncio", "trio"])
def virtual(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """A function that runs a coroutine function on a clock that jumps, on both event loops."""
    return lambda main: run_virtual_on(request.param, main)


async def ask_for(seconds: float, connection: Any, pause: float = 0.01) -> float:
    """Send requests one after another. Return the longest duration of one."""
    end = anyio.current_time() + seconds
    longest = 0.0
    while (began := anyio.current_time()) < end:
        await heartbeat(connection)
        longest = max(longest, anyio.current_time() - began)
        await anyio.sleep(pause)
    return longest


@pytest.mark.cases(2)  # each waits for sessions to end
@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256"])
def test_session_is_renewed_while_requests_go_on(virtual: Any, name: str) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        if name != "PLAIN":
            broker.authenticate = scram_steps(lifetime_ms=4000)
        mechanism = plain() if name == "PLAIN" else scram(name)
        async with logged_in(broker, mechanism) as connection:
            assert await ask_for(60, connection) < 0.1
        assert broker.connections == 1
        assert broker.cut_off == 0
        times = [time for time, _ in broker.logins]
        gaps = [late - early for early, late in itertools.pairwise(times)]
        assert all(3.4 <= gap <= 3.81 for gap in gaps)
        assert len({round(gap, 3) for gap in gaps}) > 5  # random

    virtual(main)


def test_login_waits_behind_a_request_in_flight(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            await heartbeat(connection, 1)
            broker.delay = 8.0  # the session ends while this request waits at the broker
            async with anyio.create_task_group() as tasks:

                async def slow() -> None:
                    response = await connection.request(HeartbeatRequest(group_id="2"), timeout=60)
                    assert response.throttle_time_ms == 2

                await anyio.sleep(2)
                tasks.start_soon(slow)
                await anyio.sleep(5)
                broker.delay = 0.0
            assert await heartbeat(connection, 3) == 3
        assert broker.connections == 1
        assert len(broker.logins) == 2

    virtual(main)


def test_requests_wait_while_a_login_is_under_way(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        steps = scram_steps(lifetime_ms=4000)
        broker.authenticate = steps
        async with logged_in(broker, scram(), max_in_flight=50) as connection:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(ask_for, 12, connection, 0.02)
        names = [type(each).__name__ for each in broker.requests]
        logins = [index for index, name in enumerate(names) if name == "SaslHandshakeRequest"]
        assert len(logins) >= 4
        for index in logins:
            assert names[index + 1 : index + 3] == ["SaslAuthenticateRequest"] * 2
        assert broker.cut_off == 0

    virtual(main)


def test_idle_connection_logs_in_before_its_next_request(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            await anyio.sleep(100)
            assert len(broker.logins) == 1
            assert await heartbeat(connection, 7) == 7
            assert len(broker.logins) == 2
        assert broker.connections == 1

    virtual(main)


def test_login_is_repeated_when_it_came_too_early(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=20_000)

        def offer(number: int) -> SaslHandshakeResponse:
            if number == 2:
                return SaslHandshakeResponse(error_code=34)
            return SaslHandshakeResponse(mechanisms=OFFERED)

        broker.handshake = offer
        check = broker.authenticate
        broker.authenticate = lambda data: (
            refused("", 34) if len(broker.logins) == 2 else check(data)
        )
        async with logged_in(broker, plain()) as connection:
            assert await ask_for(40, connection) < 0.1
        assert broker.connections == 1
        second, third = broker.logins[1][0], broker.logins[2][0]
        assert 1.0 <= third - second < 1.2

    virtual(main)


@pytest.mark.parametrize(
    "message", ["Cannot change principals during re-authentication", "Invalid password"]
)
def test_connection_ends_when_a_later_login_is_refused(virtual: Any, message: str) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            broker.authenticate = lambda _: refused(message)
            with pytest.raises(KafkaConnectionError, match="could not be renewed") as raised:
                await ask_for(20, connection)
            assert message in str(raised.value)
            assert connection.closed_by_us  # no back-off, because a new connection decides
        assert broker.connections == 1

    virtual(main)


def test_later_refusal_shows_no_password_that_the_broker_repeats(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            broker.authenticate = lambda _: refused(f"wrong: {PASSWORD}")
            with pytest.raises(KafkaConnectionError, match=r"wrong: \*\*\*") as raised:
                await ask_for(20, connection)
            assert PASSWORD not in str(raised.value)

    virtual(main)


def test_connection_ends_when_a_later_login_is_not_answered(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain(), timeout=2) as connection:
            broker.handshake = lambda _: None
            broker.authenticate = lambda _: None
            with pytest.raises(KafkaError):
                await ask_for(20, connection)
            assert connection.failure is not None
            assert "did not respond to SaslHandshake" in str(connection.failure)

    virtual(main)


def test_credentials_are_asked_for_at_each_login(virtual: Any) -> None:
    async def main() -> None:
        asked: list[float] = []

        async def provide() -> tuple[str, str]:
            asked.append(anyio.current_time())
            await anyio.sleep(0.2)  # no request waits for this
            return "alice", PASSWORD

        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain(provide)) as connection:
            assert await ask_for(20, connection) < 0.1
        assert len(asked) == len(broker.logins) == 6

    virtual(main)


class FarNetwork(Network):
    """A network whose requests need a while to the broker. Its responses need no time."""

    SECONDS = 0.1

    async def connect(self, host: str, port: int) -> ByteConnection:
        connection = await super().connect(host, port)
        send = connection.send

        async def send_late(buffers: Sequence[Buffer]) -> None:
            await anyio.sleep(self.SECONDS)
            await send(buffers)

        vars(connection)["send"] = send_late
        return connection


def test_no_request_reaches_a_distant_broker_after_the_session(virtual: Any) -> None:
    async def main() -> None:
        late = itertools.cycle((0.0, 0.7))  # every other login comes after the end of its session

        async def provide() -> tuple[str, str]:
            await anyio.sleep(next(late))
            return "alice", PASSWORD

        broker = SaslPeer(lifetime_ms=4000)
        broker.delay = 0.02
        async with logged_in(broker, plain(provide), FarNetwork) as connection:
            await ask_for(60, connection)
        assert broker.cut_off == 0
        assert broker.connections == 1
        assert len(broker.logins) > 10

    virtual(main)


def test_failing_credentials_are_retried_while_the_session_lasts(virtual: Any) -> None:
    async def main() -> None:
        asked: list[int] = []

        async def provide() -> tuple[str, str]:
            asked.append(0)
            if len(asked) in (2, 3):
                raise OSError("the vault is down")
            return "alice", PASSWORD

        broker = SaslPeer(lifetime_ms=10_000)
        async with logged_in(broker, plain(provide)) as connection:
            await ask_for(20, connection)
        assert broker.connections == 1
        assert len(asked) > 4

    virtual(main)


def test_session_without_end_is_not_renewed(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=0)
        async with logged_in(broker, plain()) as connection:
            await ask_for(100, connection, 1.0)
        assert len(broker.logins) == 1

    virtual(main)


def test_renewal_stops_when_the_broker_limits_no_more(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            broker.lifetime_ms = 0
            await ask_for(30, connection, 0.1)
        assert len(broker.logins) == 2

    virtual(main)


def token_mechanism(life: float, made: list[tuple[float, float]]) -> OAuthBearerMechanism:
    """Return a mechanism with tokens that expire after this time of the loop's clock."""

    async def fetch() -> Any:
        now = anyio.current_time()
        made.append((now, now + life))
        token = unsecured({"sub": "alice", "iat": now, "exp": now + life})
        return token_of(Secret(token), now)

    return OAuthBearerMechanism(TokenSource(fetch, clock=anyio.current_time))


def test_short_tokens_are_replaced_without_a_gap(virtual: Any) -> None:
    async def main() -> None:
        made: list[tuple[float, float]] = []
        left: list[float] = []
        broker = SaslPeer()

        def check(data: bytes) -> Any:
            left.append(made[-1][1] - anyio.current_time())
            return done(int(left[-1] * 1000))

        broker.authenticate = check
        async with logged_in(broker, token_mechanism(5.0, made)) as connection:
            assert await ask_for(60, connection) < 0.1
        assert broker.connections == 1
        assert broker.cut_off == 0
        assert min(left) >= 1.0
        assert len(made) >= 12

    virtual(main)


@pytest.mark.parametrize("lifetime_ms", [0, 900])
def test_login_fails_when_the_token_is_about_to_expire(virtual: Any, lifetime_ms: int) -> None:
    async def main() -> None:
        broker = SaslPeer()
        broker.authenticate = lambda _: done(lifetime_ms)
        with pytest.raises(OAuthTokenError, match=f"for {lifetime_ms} ms only") as raised:
            async with logged_in(broker, token_mechanism(300, [])):
                pass
        assert str(raised.value).startswith("b:9092: ")
        assert "sub=alice" in str(raised.value)

    virtual(main)


def test_requests_of_a_login_do_not_count_as_use(virtual: Any) -> None:
    async def main() -> None:
        broker = SaslPeer(lifetime_ms=4000)
        async with logged_in(broker, plain()) as connection:
            await anyio.sleep(1)
            await heartbeat(connection)
            await anyio.sleep(100)
        handshakes = [each for each in broker.requests if isinstance(each, SaslHandshakeRequest)]
        assert len(handshakes) == 2

    virtual(main)


def test_request_behind_the_gate_waits_for_no_end_of_a_pause() -> None:
    """The end of a former pause would wake the sender again and again until the login ends."""
    now = 0.0
    pipeline = GatedPipeline(5, lambda: now)
    pipeline.pause(1.0)
    pending = Pending("Heartbeat", 1, [b"x"], 8.0, now, OneShot(None))
    pipeline.waiting.append(pending)
    assert pipeline.resumes_at == 1.0
    now = 2.0
    pipeline.is_closed = True
    assert pipeline.take_sendable() == []
    assert pipeline.resumes_at == math.inf
    pipeline.is_closed = False
    assert pipeline.take_sendable() == [b"x"]
