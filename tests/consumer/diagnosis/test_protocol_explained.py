"""The texts of explain() on the group protocol, also before ``auto`` has chosen one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.testing import Call, MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for
from tests.support.virtual import run_virtual


async def _silent(_: Call) -> Any:
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("api", "reason"),
    [
        ("FindCoordinator", "the coordinator of the group is not known yet"),
        ("DescribeGroups", "the coordinator has not responded to the look-up that decides it"),
    ],
)
def test_open_choice_is_explained_while_the_consumer_joins(api: str, reason: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_protocol="auto") as consumer:
                fault = cluster.on(api, _silent)
                consumer.subscribe(["t"])
                await consumer.poll(timeout_ms=2_000)
                found = consumer.explain()
                assert f"group protocol: not chosen yet, because {reason}" in str(found)
                assert any(
                    f"the group protocol is not chosen yet, because {reason}" in each
                    for each in found.reasons
                )
                assert "JoinGroup" not in str(found)
                group = found.as_dict()["group"]
                assert group is not None
                assert (group["group_protocol"], group["group_protocol_reason"]) == (None, reason)
                fault.stop()

    run_virtual(main)


def test_open_choice_is_explained_before_the_first_subscription() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_protocol="auto") as consumer:
                text = str(consumer.explain())
                assert "not chosen yet, because this consumer has not joined the group" in text
                consumer.subscribe(["t"])
                await poll_for(consumer, consumer.assignment)
                text = str(consumer.explain())
                assert "group protocol: consumer, because the cluster has it enabled" in text

    run_virtual(main)
