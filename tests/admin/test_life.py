"""The life and the options of admin clients."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import Any

import pytest

from kohort import AsyncKafkaAdminClient, KafkaAdminClient
from kohort.errors import (
    ConsumerClosedError,
    InvalidOptionError,
    NoBrokersAvailable,
    UnknownOptionError,
    UnsupportedOptionError,
)
from kohort.testing import Cluster, MemoryCluster
from tests.support.awaited import EACH_ADMIN
from tests.support.virtual import run_virtual


@EACH_ADMIN
@pytest.mark.anyio
async def test_constructor_refuses_what_it_cannot_use(admin_class: Any) -> None:
    with pytest.raises(UnsupportedOptionError, match="group_id is an option of consumers"):
        admin_class(group_id="billing")
    with pytest.raises(UnknownOptionError, match="bootstrap_server"):
        admin_class(bootstrap_server="localhost:9092")
    with pytest.raises(InvalidOptionError, match="request_timeout_ms"):
        admin_class(request_timeout_ms=-1)


@EACH_ADMIN
@pytest.mark.anyio
async def test_properties_of_a_consumer_are_accepted(admin_class: Any) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        admin = admin_class.from_properties(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "billing",
                "isolation.level": "read_committed",
                "client.id": "operator",
            }
        )
        async with admin:
            assert await admin.list_groups() == ()
        with pytest.raises(UnknownOptionError, match="bootstrap\\.server"):
            admin_class.from_properties({"bootstrap.server": cluster.bootstrap_servers})


@EACH_ADMIN
@pytest.mark.anyio
async def test_closed_client_raises_and_can_be_closed_again(admin_class: Any) -> None:
    with Cluster() as cluster:
        admin = admin_class(bootstrap_servers=cluster.bootstrap_servers)
        async with admin:
            await admin.start()
            await admin.list_groups()
        with pytest.raises(ConsumerClosedError, match="the admin client is closed"):
            await admin.list_groups()
        await admin.close()


def test_call_without_brokers_raises_that_for_all_resources() -> None:
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100) as admin:
        with pytest.raises(NoBrokersAvailable):
            admin.describe_groups("billing")


def test_client_that_is_not_closed_warns_and_ends_its_thread() -> None:
    with Cluster() as cluster:
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        admin.list_groups()
        thread = admin._driver.thread
        assert thread is not None
        with pytest.warns(ResourceWarning, match="KafkaAdminClient was not closed"):
            del admin
            gc.collect()
        thread._thread.join(60)
        assert not thread.is_running


def test_repr_says_the_state_and_pickling_is_refused() -> None:
    admin = KafkaAdminClient(bootstrap_servers="localhost:1")
    assert repr(admin) == "<KafkaAdminClient not started>"
    with pytest.raises(TypeError, match="KafkaAdminClient cannot be pickled"):
        pickle.dumps(admin)
    admin.close()
    assert repr(admin) == "<KafkaAdminClient closed>"


def test_threads_may_share_a_client() -> None:
    with Cluster() as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as one:
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(one.list_groups())) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == [()] * 8


def test_client_runs_on_a_cluster_in_memory() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            async with AsyncKafkaAdminClient(
                bootstrap_servers=cluster.bootstrap_servers,
                connect=cluster.connect,
                wall_clock=cluster.wall_clock,
            ) as admin:
                plan = await admin.reset_group_offsets("g", "-1h", topics="orders")
                assert [step.after.offset for step in plan.steps if step.after] == [0]

    run_virtual(main)
