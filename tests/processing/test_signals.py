"""SIGTERM and SIGINT stop process() with AsyncKafkaConsumer, on real event loops."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.processing import process
from kohort.testing import Cluster

Record = ConsumerRecord[bytes, bytes]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("second", ["signal", "wakeup"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_or_call_ends_the_drain(
    backend: str, number: signal.Signals, second: str
) -> None:
    handlers: list[object] = []

    async def main(servers: str) -> None:
        before = signal.getsignal(number)
        drained = anyio.Event()

        async def handler(record: Record) -> None:
            os.kill(os.getpid(), number)  # the first: drain
            await anyio.sleep(0.5)
            if second == "signal":  # at once
                os.kill(os.getpid(), number)
            else:
                consumer.wakeup()
            try:
                await anyio.sleep_forever()
            finally:
                drained.set()

        consumer = AsyncKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        )
        await process(consumer, handler, drain=1e6)
        assert drained.is_set()
        handlers.extend((before, signal.getsignal(number)))

    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["a"])
        anyio.run(main, cluster.bootstrap_servers, backend=backend)
        assert [at.offset for at in cluster.committed("g").values()] in ([], [0])
        assert cluster.group("g").members == ()
    assert handlers[0] is handlers[1]
