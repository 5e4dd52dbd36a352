"""Short sessions under load, on a virtual clock: nothing fails, nothing waits."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from kohort.testing import MemoryCluster, Security
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

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
    """Poll for ever; note every record, and the time between two polls with records."""
    last = anyio.current_time()
    while True:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
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
