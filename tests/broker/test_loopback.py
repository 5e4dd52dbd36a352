"""The cluster's brokers on loopback ports, in the test's event loop."""

from __future__ import annotations

from contextlib import ExitStack

import anyio
import anyio.lowlevel
import pytest

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.network._loopback import LoopbackNetwork
from kohort.protocol.messages import ApiVersionsRequest
from tests.broker.raw import Raw

WAITING = 200
TURNS = 20


@pytest.mark.anyio
async def test_waiting_connections_are_accepted_in_few_loop_iterations() -> None:
    """With one connection per iteration a large group would rebalance for every few members."""
    config = ClusterConfig()
    server = ClusterServer(config, LoopbackNetwork(config))
    server.listen()
    with ExitStack() as opened:
        for _ in range(WAITING):
            client = Raw(f"127.0.0.1:{server.state.nodes[0].port}")
            opened.callback(client.close)
            client.send(ApiVersionsRequest(), 2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run)
            for _ in range(TURNS):
                await anyio.lowlevel.checkpoint()
            assert len(server.dispatcher.requests) == WAITING
            tasks.cancel_scope.cancel()
