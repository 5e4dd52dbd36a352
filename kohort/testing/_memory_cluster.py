"""The public cluster in the event loop of a test, on that loop's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TypeVar, Unpack

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.cluster._broker import Broker
from kohort.broker.network._memory import HOST, MemoryConnection, MemoryNetwork
from kohort.errors import IllegalStateError
from kohort.testing._cluster_options import (
    MemoryClusterOptions,
    cluster_config,
    show_options,
)
from kohort.testing._fault_control import FaultControl
from kohort.testing._group_control import GroupControl
from kohort.testing._handle import ClusterHandle, timed_out
from kohort.testing._snapshots import GroupSnapshot

T = TypeVar("T")

STARTED_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: wall-clock time of every start of the cluster."""
_POLL_INTERVAL = 1.0


class MemoryCluster(ClusterHandle, FaultControl, GroupControl):
    """A cluster without sockets and threads; an async context manager in any event loop.

    Clients connect with the connect hook ``connect`` from tasks of the same event loop. Its methods
    must be called there too, and none of them blocks. With trio's ``MockClock`` hours of a group's
    life take only their computing time. The arguments are those of :class:`Cluster`. The partitions
    of a killed broker get new leaders immediately, and ``seed`` is 0.
    """

    _has_certificates = False

    @show_options(MemoryClusterOptions, broker_session_timeout_ms=0, seed=0)
    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int | None] | None = None,
        **options: Unpack[MemoryClusterOptions],
    ) -> None:
        super().__init__()
        self._config = replace(cluster_config(MemoryCluster, brokers, topics, **options), host=HOST)
        self._network = MemoryNetwork(self._config)
        self._server: ClusterServer | None = None
        self._tasks: TaskGroup | None = None
        self._change: anyio.Event | None = None
        self._loop: object = None

    async def __aenter__(self) -> MemoryCluster:
        if self._server is not None:
            raise IllegalStateError("the cluster is running already")
        self._loop = anyio.lowlevel.current_token().native_token
        server = ClusterServer(self._config, self._network, self._changed, STARTED_MS)
        server.listen()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        tasks.start_soon(server.run)
        self._server, self._tasks = server, tasks
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks, self._tasks, self._server = self._tasks, None, None
        assert tasks is not None
        tasks.cancel_scope.cancel()
        # Without the error as an argument it is raised as it is, not in an exception group.
        await tasks.__aexit__(None, None, None)

    async def connect(self, host: str, port: int, /, *, certificate: str = "") -> MemoryConnection:
        """Connect to a broker, as the connect hook of clients.

        Use ``AsyncKafkaConsumer(..., connect=cluster.connect)`` in a task of the same event loop.
        ConnectionRefusedError is raised in other loops, and where no broker listens. Listeners with
        TLS raise the errors of a failed handshake, such as ssl.SSLCertVerificationError.
        ``certificate`` is the CN of the client's certificate, as in
        ``functools.partial(cluster.connect, certificate="app")``.
        """
        if anyio.lowlevel.current_token().native_token != self._loop:
            raise ConnectionRefusedError(
                "a MemoryCluster serves clients in its own event loop only: use AsyncKafkaConsumer "
                "there. KafkaConsumer runs in another thread, so use Cluster for it"
            )
        return await self._network.connect(host, port, certificate)

    async def wait_until(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait until the predicate returns a true value, and return that value.

        The predicate is called again after each change in the cluster. KafkaTimeoutError after
        ``timeout`` seconds of the loop's clock.
        """
        deadline = anyio.current_time() + timeout
        while not (result := predicate()):
            if anyio.current_time() >= deadline:
                raise timed_out(predicate, timeout)
            if self._change is None:
                self._change = anyio.Event()
            until = min(deadline, anyio.current_time() + _POLL_INTERVAL)
            with anyio.CancelScope(deadline=until):
                await self._change.wait()
        return result

    async def wait_for_group(
        self, group_id: str, members: int | None = None, timeout: float = 10.0
    ) -> GroupSnapshot:
        """Wait until a group is stable, with this number of members, and return it.

        0 members means that the group is empty or does not exist. KafkaTimeoutError says what the
        group was after ``timeout`` seconds.
        """
        found = await self.wait_until(self._has_members(group_id, members), timeout)
        assert found is not None
        return found

    async def wait_for_lag(self, group_id: str, lag: int = 0, timeout: float = 10.0) -> None:
        """Wait until a group has committed offsets that are at most ``lag`` behind in all.

        A group without a commit is not done. KafkaTimeoutError names the partitions.
        """
        await self.wait_until(self._is_done(group_id, lag), timeout)

    def _changed(self) -> None:
        if self._change is not None:
            self._change.set()
            self._change = None

    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        if self._server is None:
            raise IllegalStateError("the cluster is not running: use `async with MemoryCluster()`")
        return function(self._server)

    def _await_end(self, broker: Broker) -> None:
        """Return immediately. The connections close in the loop's next iteration without
        responses.
        """
