"""The sync clients in a program whose own tasks run on trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kohort import KafkaAdminClient, KafkaConsumer
from kohort.testing import Cluster

COUNT = 20


def read_and_commit(cluster: Cluster) -> None:
    found = 0
    servers = cluster.bootstrap_servers
    with KafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        while found < COUNT:
            found += sum(map(len, consumer.poll(timeout_ms=60_000).values()))
        consumer.commit()
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        assert admin.describe_groups(["g"])["g"].state == "Empty"


async def in_the_task(cluster: Cluster) -> None:
    read_and_commit(cluster)


async def in_a_worker_thread(cluster: Cluster) -> None:
    await trio.to_thread.run_sync(read_and_commit, cluster)


@pytest.mark.parametrize("caller", [in_the_task, in_a_worker_thread])
def test_sync_clients_work_in_a_program_on_trio(
    caller: Callable[[Cluster], Awaitable[None]],
) -> None:
    """The event loop of a consumer thread is asyncio's, whatever its caller runs on."""
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.produce("orders", [str(number) for number in range(COUNT)])
        trio.run(caller, cluster)
        assert sum(at.offset for at in cluster.committed("g").values()) == COUNT
