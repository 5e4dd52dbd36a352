"""The first login of a connection: its steps, every refusal, and the text of each error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.errors import (
    BrokerResponseError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    SaslServerError,
    SecurityError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    WrongListenerError,
)
from kohort.protocol.messages import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.transport.peer import Peer, api_versions
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

pytestmark = pytest.mark.anyio


async def failing(broker: SaslPeer, mechanism: Any = None, **options: Any) -> KafkaError:
    """Return the error of a login, which names the address."""
    with pytest.raises(KafkaError) as raised:
        async with logged_in(broker, mechanism or plain(), **options):
            pass
    error = raised.value
    assert "b:9092" in str(error)
    assert PASSWORD not in str(error)
    return error


async def test_plain_login_sends_one_message() -> None:
    broker = SaslPeer()
    async with logged_in(broker, plain()) as connection:
        assert await heartbeat(connection, 3) == 3
    handshake, first, _ = broker.requests
    assert isinstance(handshake, SaslHandshakeRequest)
    assert handshake.mechanism == "PLAIN"
    assert isinstance(first, SaslAuthenticateRequest)
    assert bytes(first.auth_bytes) == b"\0alice\0alice-secret"


@pytest.mark.parametrize("last", [0, 1, 2])
async def test_login_uses_the_version_that_the_broker_has(last: int) -> None:
    broker = SaslPeer()
    serve = broker.serve

    async def serve_old(peer: Peer) -> None:
        async def shake(_: Any = None) -> None:
            await Peer.shake_hands(peer, api_versions({36: (0, last)}))

        peer.shake_hands = shake  # type: ignore[assignment,method-assign]
        await serve(peer)

    broker.serve = serve_old  # type: ignore[method-assign]
    async with logged_in(broker, plain()) as connection:
        await heartbeat(connection)
    assert broker.versions == [last]


async def test_scram_login_checks_the_signature() -> None:
    broker = SaslPeer()
    broker.authenticate = scram_steps()
    async with logged_in(broker, scram()) as connection:
        assert await heartbeat(connection, 4) == 4
    assert len(broker.requests) == 4


async def test_login_fails_when_the_mechanism_is_not_enabled() -> None:
    broker = SaslPeer()
    broker.handshake = lambda _: SaslHandshakeResponse(error_code=33, mechanisms=["B", "A\n"])
    error = await failing(broker)
    assert type(error) is UnsupportedSaslMechanismError
    assert "PLAIN" in str(error)
    assert str(error).endswith(r"offers: A\n, B")


async def test_login_fails_when_the_listener_has_no_sasl() -> None:
    broker = SaslPeer()
    broker.handshake = lambda _: SaslHandshakeResponse(error_code=34)
    error = await failing(broker)
    assert type(error) is WrongListenerError
    assert "listener without SASL. Set security_protocol to PLAINTEXT or SSL" in str(error)


@pytest.mark.parametrize(("code", "offered"), [(34, OFFERED), (-1, []), (7, OFFERED)])
async def test_login_raises_other_codes_of_the_handshake(code: int, offered: list[str]) -> None:
    broker = SaslPeer()
    broker.handshake = lambda _: SaslHandshakeResponse(error_code=code, mechanisms=offered)
    error = await failing(broker)
    assert isinstance(error, BrokerResponseError)
    assert error.code == code


async def test_login_names_the_principal_when_it_is_refused() -> None:
    broker = SaslPeer()
    broker.authenticate = lambda _: refused("Invalid\nusername or password: alice-secret")
    error = await failing(broker)
    assert type(error) is SaslAuthenticationFailedError
    assert isinstance(error, SecurityError)
    assert "refused the PLAIN login of 'alice'" in str(error)
    assert r"Invalid\nusername" in str(error)
    assert len(broker.logins) == 1  # the password cannot have changed


@pytest.mark.parametrize(("code", "kind"), [(34, IllegalSaslStateError), (42, BrokerResponseError)])
async def test_login_raises_other_codes_of_a_step(code: int, kind: type[Exception]) -> None:
    broker = SaslPeer()
    broker.authenticate = lambda _: refused("no\x1b", code)
    error = await failing(broker)
    assert isinstance(error, kind)
    assert r"\x1b" in str(error)


async def test_login_fails_when_scram_has_no_proof() -> None:
    broker = SaslPeer()
    steps = scram_steps()
    broker.authenticate = lambda data: steps(data) if data[:1] == b"n" else done()
    error = await failing(broker, scram())
    assert type(error) is SaslServerError
    assert "without a proof" in str(error)


async def test_login_fails_when_it_does_not_end() -> None:
    class Endless:
        name = "ENDLESS"

        async def login(self, host: str) -> Any:
            return self

        async def login_again(self, refused: object, host: str) -> None:
            return None

        principal = "p"

        def first(self) -> bytes:
            return b"1"

        async def next(self, challenge: bytes) -> bytes:
            return b"1"

    broker = SaslPeer()
    broker.authenticate = lambda _: done(0, b"more")
    error = await failing(broker, Endless())
    assert type(error) is SaslServerError
    assert len(broker.logins) == 16


def silent(_: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("handshake", "authenticate", "step"),
    [(silent, None, "SaslHandshake"), (None, silent, "SaslAuthenticate, step 1")],
)
async def test_login_names_the_step_that_took_too_long(
    handshake: Callable[[int], None] | None,
    authenticate: Callable[[bytes], None] | None,
    step: str,
) -> None:
    broker = SaslPeer()
    broker.handshake = handshake or broker.handshake
    broker.authenticate = authenticate or broker.authenticate
    error = await failing(broker, timeout=0.05)
    assert type(error) is KafkaTimeoutError
    assert str(error).endswith(f"PLAIN login within 0.05 s: no response to {step}")


@pytest.mark.parametrize("kind", [SaslHandshakeRequest, SaslAuthenticateRequest])
async def test_login_fails_when_the_broker_closes(kind: type[Any]) -> None:
    async def serve(peer: Peer) -> None:
        await peer.shake_hands()
        while (exchange := await peer.receive()) is not None:
            if isinstance(exchange[1], kind):
                return
            await peer.reply(exchange[0], SaslHandshakeResponse(mechanisms=OFFERED))

    broker = SaslPeer()
    broker.serve = serve  # type: ignore[method-assign]
    error = await failing(broker)
    assert type(error) is KafkaConnectionError
    assert kind.__name__.removesuffix("Request") in str(error)


async def test_login_fails_when_the_broker_is_too_old() -> None:
    async def serve(peer: Peer) -> None:
        await peer.shake_hands(api_versions({17: (0, 0)}))
        await peer.receive()

    broker = SaslPeer()
    broker.serve = serve  # type: ignore[method-assign]
    assert type(await failing(broker)) is UnsupportedVersionError


async def test_login_takes_a_rotated_password_at_once() -> None:
    answers = [("alice", "old"), ("alice", PASSWORD)]
    asked: list[int] = []

    async def provide() -> tuple[str, str]:
        asked.append(len(asked))
        return answers[min(len(asked), 2) - 1]

    broker = SaslPeer()
    async with logged_in(broker, plain(provide)) as connection:
        await heartbeat(connection)
    assert len(asked) == 2
    assert broker.connections == 2


async def test_login_is_not_repeated_when_the_password_is_the_same() -> None:
    asked: list[int] = []

    def provide() -> tuple[str, str]:
        asked.append(0)
        return "alice", "old"

    broker = SaslPeer()
    assert type(await failing(broker, plain(provide))) is SaslAuthenticationFailedError
    assert len(asked) == 2
    assert broker.connections == 1


async def test_login_is_repeated_once_when_passwords_differ() -> None:
    asked: list[int] = []

    async def provide() -> tuple[str, str]:
        asked.append(0)
        return "alice", f"wrong-{len(asked)}"

    broker = SaslPeer()
    assert type(await failing(broker, plain(provide))) is SaslAuthenticationFailedError
    assert broker.connections == 2


async def test_login_error_shows_no_secret_in_its_frames() -> None:
    error = await failing(SaslPeer(), plain(lambda: ("alice", "planted-secret")))
    found = []
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        chain += [each.__cause__, each.__context__]
        trace = each.__traceback__
        while trace is not None:
            if "/kohort/" in trace.tb_frame.f_code.co_filename:
                found += [repr(value) for value in trace.tb_frame.f_locals.values()]
            trace = trace.tb_next
    assert found
    assert not [text for text in found if re.search("planted-secret", text)]


async def test_login_error_shows_no_secret_when_the_network_fails() -> None:
    class Broken:
        async def recv_into(self, view: memoryview, /) -> int:
            await anyio.sleep_forever()
            return 0

        async def send(self, buffers: Any, /) -> None:
            raise OSError("broken")

        async def aclose(self) -> None:
            pass

    from kohort.transport import BufferPool
    from kohort.transport.connection._frames import FrameSource
    from kohort.transport.connection._login import DirectLoginSender

    link = Broken()
    ask = DirectLoginSender(link, FrameSource(link, BufferPool(), 100), "c", lambda: 1, lambda: 0.0)
    with pytest.raises(KafkaConnectionError) as raised:
        await ask(SaslAuthenticateRequest(auth_bytes=b"planted-secret"), 1)
    assert raised.value.__cause__ is not None
    assert raised.value.__cause__.__traceback__ is None


@pytest.mark.parametrize("lifetime_ms", [-1, -(1 << 63), (1 << 63) - 1])
async def test_login_takes_any_lifetime(lifetime_ms: int) -> None:
    broker = SaslPeer()
    broker.authenticate = lambda _: done(lifetime_ms)
    async with logged_in(broker, plain()) as connection:
        ends_at = connection.logins.session.ends_at if connection.logins else 0
        assert (ends_at is None) is (lifetime_ms < 0)
