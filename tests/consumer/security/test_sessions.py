"""Short sessions under load, on a virtual clock: nothing fails, nothing waits."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from kohort.broker.security._tokens import check_unsecured
from kohort.testing import MemoryCluster, Security, unsecured_token
from kohort.types import TopicPartition
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual, run_virtual_on

USER, PASSWORD = "alice", "alice-secret"
SESSION_MS = 4_000
SECONDS = 60
PAUSE = 0.05
"""Seconds between two records of the producer."""


class Rotating:
    """Credentials of a user whose password changes."""

    def __init__(self) -> None:
        self.password = PASSWORD
        self.asked = 0

    async def credentials(self) -> tuple[str, str]:
        self.asked += 1
        await anyio.sleep(0.3)
        return USER, self.password


async def consume(consumer: MemoryConsumer, found: list[bytes], gaps: list[float]) -> None:
    """Poll forever. Note every record, and the time between two polls with records."""
    last = anyio.current_time()
    while True:
        for records in (await consumer.poll(timeout_ms=1000)).values():
            found += [record.value or b"" for record in records]
            gaps.append(anyio.current_time() - last)
            last = anyio.current_time()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_consumer_reads_on_through_sessions_and_rebalances(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    rotating = Rotating()

    async def main() -> None:
        epoch = anyio.current_time()
        security = Security(("SASL_PLAINTEXT",), {USER: PASSWORD}, session_lifetime_ms=SESSION_MS)
        async with MemoryCluster(brokers=2, topics={"t": 4}, security=security) as cluster:
            given: dict[str, Any] = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": mechanism,
                "sasl_credentials": rotating.credentials,
            }
            found: list[bytes] = []
            gaps: list[float] = []

            async def visit() -> None:
                async with MemoryConsumer(cluster, "t", seed=6, **given) as second:
                    with anyio.move_on_after(15):
                        await consume(second, found, [])
                    await second.commit()

            async with MemoryConsumer(cluster, "t", **given) as first:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(consume, first, found, gaps)
                    sent = 0
                    while anyio.current_time() < epoch + SECONDS:
                        cluster.produce("t", [b"%d" % sent], partition=sent % 4)
                        sent += 1
                        await anyio.sleep(PAUSE)
                        if sent == 200:
                            tasks.start_soon(visit)
                        if sent == 400:
                            cluster.set_password(USER, "another-secret")
                            rotating.password = "another-secret"
                    await anyio.sleep(2)
                    tasks.cancel_scope.cancel()
            assert sorted(map(int, found)) == list(range(sent))
            assert max(gaps[1:]) < 0.5

    with caplog.at_level(logging.DEBUG, "kohort"):
        run_virtual(main)
    lost = [
        each.message
        for each in caplog.records
        if each.levelno >= logging.WARNING and each.name != "kohort.config"
    ]
    assert lost == []
    assert not [each for each in caplog.messages if "lost with its connection" in each]
    renewed = [each for each in caplog.messages if "renewed the SASL session" in each]
    assert len(renewed) > 30
    assert "secret" not in caplog.text.replace("***", "")


LIFE = 5.0
"""Lifetime of a token in seconds."""


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_consumer_reads_on_while_its_tokens_expire(backend: str) -> None:
    """Tokens expire by the clock of the cluster, which is not the clock of the machine."""
    left: list[float] = []

    def check(token: str, now: float) -> tuple[str, float]:
        user, expiry = check_unsecured(token, now)
        left.append(expiry - now)
        return user, expiry

    async def main() -> None:
        security = Security(["SASL_PLAINTEXT"], tokens=check, session_lifetime_ms=SESSION_MS)
        async with MemoryCluster(brokers=2, topics={"t": 4}, security=security) as cluster:

            async def token() -> str:
                return unsecured_token("app", LIFE, now=cluster.wall_clock())

            consumer = MemoryConsumer(
                cluster,
                "t",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=token,
                wall_clock=cluster.wall_clock,
            )
            found: list[bytes] = []
            gaps: list[float] = []
            async with consumer, anyio.create_task_group() as tasks:
                tasks.start_soon(consume, consumer, found, gaps)
                for number in range(400):
                    cluster.produce("t", [b"%d" % number], partition=number % 4)
                    await anyio.sleep(PAUSE)
                await anyio.sleep(1)
                tasks.cancel_scope.cancel()
            assert sorted(map(int, found)) == list(range(400))
            assert max(gaps[1:]) < 0.5

    run_virtual_on(backend, main)
    assert len(left) > 15
    assert min(left) >= min(2.0, LIFE / 5)


def test_last_poll_timestamp_is_of_the_wall_clock() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", [b"value"])
            place = TopicPartition("t", 0)
            async with MemoryConsumer(cluster, "t", wall_clock=cluster.wall_clock) as consumer:
                await values(consumer, 1)
                polled = consumer.last_poll_timestamp(place)
                assert polled is not None
                assert 0 <= cluster.wall_clock() * 1000 - polled < 1000

    run_virtual(main)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_token_is_fresh_when_it_follows_a_long_fetch(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A token that was sent after a fetch once expired before the broker read it."""

    async def main() -> None:
        security = Security(["SASL_PLAINTEXT"])
        async with MemoryCluster(brokers=2, topics={"t": 4}, security=security) as cluster:

            async def token() -> str:
                return unsecured_token("app", LIFE, now=cluster.wall_clock())

            async with MemoryConsumer(
                cluster,
                "t",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=token,
                wall_clock=cluster.wall_clock,
                fetch_max_wait_ms=5000,
            ) as consumer:
                with anyio.move_on_after(SECONDS):
                    await consume(consumer, [], [])

    with caplog.at_level(logging.DEBUG, "kohort.transport"):
        run_virtual_on(backend, main)
    assert not [each for each in caplog.messages if "cannot be renewed" in each]
    assert len([each for each in caplog.messages if "renewed the SASL session" in each]) > 10
