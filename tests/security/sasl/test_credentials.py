"""Credentials: PLAIN's message, and callables that return user and password for each login."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from kohort.config import Secret
from kohort.errors import KafkaTimeoutError, SaslServerError, SecurityError
from kohort.security import _calls
from kohort.security.sasl._credentials import Credentials, CredentialsSource
from kohort.security.sasl._plain import PlainExchange

pytestmark = pytest.mark.anyio


def plain(username: str = "alice", password: str = "secret") -> PlainExchange:
    return PlainExchange(Credentials(username, Secret(password)))


def test_plain_sends_utf8() -> None:
    assert plain("jürgen", "päss").first() == "\0jürgen\0päss".encode()


@pytest.mark.parametrize(("username", "password"), [("a\0b", "c"), ("a", "b\0c")])
def test_plain_refuses_nul(username: str, password: str) -> None:
    with pytest.raises(SecurityError, match="no NUL character") as raised:
        plain(username, password)
    assert "b\0c" not in str(raised.value)


async def test_plain_refuses_an_answer_with_content() -> None:
    with pytest.raises(SaslServerError):
        await plain().next(b"more")


def test_plain_masks_a_password_that_the_broker_repeats() -> None:
    assert "planted" not in plain(password="planted").refusal("wrong password planted")


async def test_provider_runs_in_a_worker_thread() -> None:
    threads = []

    def provide() -> tuple[str, str]:
        threads.append(threading.current_thread())
        return "alice", "secret"

    found = await CredentialsSource(None, provide).get()
    assert (found.username, found.password) == ("alice", Secret("secret"))
    assert threads != [threading.current_thread()]


async def test_async_provider_runs_on_the_loop() -> None:
    async def provide() -> tuple[str, Secret]:
        await anyio.lowlevel.checkpoint()
        return "alice", Secret("secret")

    found = await CredentialsSource(None, provide).get()
    assert found == Credentials("alice", Secret("secret"))


async def test_provider_may_return_an_awaitable() -> None:
    async def find() -> tuple[str, bytes]:
        return "alice", b"secret"

    found = await CredentialsSource(None, lambda: find()).get()
    assert found == Credentials("alice", Secret("secret"))


@pytest.mark.parametrize("result", ["alice", ("alice",), ("alice", 1), None, (b"a", "planted")])
async def test_provider_is_refused_when_it_returns_no_pair(result: Any) -> None:
    with pytest.raises(SecurityError, match=r"sasl_credentials returned .*expected") as raised:
        await CredentialsSource(None, lambda: result).get()
    assert "planted" not in str(raised.value)


async def test_provider_error_is_the_cause() -> None:
    def provide() -> Any:
        raise OSError("planted")

    with pytest.raises(SecurityError, match="sasl_credentials raised OSError") as raised:
        await CredentialsSource(None, provide).get()
    assert "planted" not in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError)


async def test_provider_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls.call, "__defaults__", (0.05,))
    release = threading.Event()
    with pytest.raises(KafkaTimeoutError, match="did not return within"):
        await CredentialsSource(None, lambda: release.wait(60)).get()
    release.set()


async def test_calls_that_hang_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "MAX_THREADS", 2)
    hanging, release = threading.Semaphore(0), threading.Event()

    def hang() -> None:
        hanging.release()
        release.wait(600)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(_calls.in_thread, hang)
        for _ in range(2):
            assert await anyio.to_thread.run_sync(lambda: hanging.acquire(timeout=60))
        tasks.cancel_scope.cancel()
    begun = []
    with anyio.move_on_after(0.2) as scope:
        await _calls.in_thread(lambda: begun.append(1))
    assert scope.cancelled_caught
    assert not begun
    release.set()
    with anyio.fail_after(60):
        await _calls.in_thread(lambda: begun.append(1))
    assert begun == [1]


def test_call_that_hangs_does_not_keep_the_process() -> None:
    program = (
        "import anyio, time\n"
        "from kohort.security._calls import call\n"
        "async def main():\n"
        "    with anyio.move_on_after(0.1):\n"
        "        await call(lambda: time.sleep(60))\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_source_without_credentials_says_so() -> None:
    with pytest.raises(SecurityError, match="set sasl_plain_username"):
        await CredentialsSource(None, None).get()


async def test_fixed_credentials_are_not_tried_again() -> None:
    fixed = Credentials("alice", Secret("secret"))
    assert await CredentialsSource(fixed, None).get_other(fixed) is None


def test_credentials_have_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(Credentials("a", Secret("b")))
    assert Credentials("a", Secret("b")) != ("a", "b")
