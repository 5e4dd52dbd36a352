"""The public cluster that serves loopback ports from a daemon thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, Unpack

import anyio
import anyio.to_thread

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.cluster._broker import Broker
from kohort.broker.network._loopback import LoopbackNetwork
from kohort.broker.network._relay import Relay, RemoteBroker
from kohort.errors import IllegalStateError
from kohort.testing._cluster_options import ClusterOptions, cluster_config, show_options
from kohort.testing._fault_control import FaultControl
from kohort.testing._group_control import GroupControl
from kohort.testing._handle import ClusterHandle, timed_out
from kohort.testing._snapshots import GroupSnapshot
from kohort.testing._thread import LoopThread

if TYPE_CHECKING:
    from kohort.testing._schema_registry import RegistryServer

T = TypeVar("T")

_POLL_INTERVAL = 0.05
"""Seconds between two calls of a predicate, which may also read state outside the cluster."""
_POLL_INTERVAL_ASYNC = 0.005


class Cluster(ClusterHandle, FaultControl, GroupControl):
    """A Kafka cluster in this process; a sync and async context manager.

    It serves Kafka's protocol on loopback ports, from a daemon thread. Clients may run in this
    process or in another one.

    ``topics`` maps names to partitions, None for the default number. ``ports`` has one port for
    each broker, or the first broker's port, and the other brokers use the next ones. Without it the
    cluster takes free ports. ``racks`` has one rack for each broker. Clients with a rack then read
    from a replica of that rack (KIP-392).

    ``group_settings`` has Kafka's names without the ``group.`` prefix.
    ``group_initial_rebalance_delay_ms`` is Kafka's config of that name; Kafka's default is 3,000.
    ``broker_session_timeout_ms`` is the time between the kill of a broker and the election of new
    leaders for its partitions; Kafka's default is 9,000. With 0, librdkafka's transactional
    producer waits without end after the coordinator of its consumer's group was killed.
    ``log_retention_check_interval_ms`` is the time between two deletions of the records that
    ``retention.ms`` and ``retention.bytes`` exclude. ``transaction_version`` 2 offers KIP-890 to
    producers, 0 and 1 do not.

    ``group_version`` 0 switches the consumer protocol of KIP-848 off. The options
    ``consumer_session_timeout_ms``, ``consumer_heartbeat_interval_ms`` and
    ``consumer_assignment_interval_ms`` apply to its groups. They may be below Kafka's minima.

    ``share_version`` 0 switches share groups off, 1 only their dead letters. ``share_lock_ms`` is
    the time of the lock on a record that a member of a share group has acquired. It may be below
    Kafka's minimum. In Kafka a fetch that waits does not notice released records. With
    ``share_release_wakes=True`` it gets them at once.

    ``configs`` are broker configs by Kafka's names, such as ``{"group.min.session.timeout.ms":
    500}``. A name that Kafka does not have raises InvalidOptionError. ``seed`` is the random seed.
    Without one, the cluster id and topic ids are new. ``security`` has the listeners, users and
    certificates; the default is one PLAINTEXT listener.

    ``schema_registry`` starts a schema registry beside the brokers, at
    :attr:`schema_registry_url`. True takes a free port.
    """

    @show_options(ClusterOptions)
    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int | None] | None = None,
        **options: Unpack[ClusterOptions],
    ) -> None:
        super().__init__()
        self._config = cluster_config(Cluster, brokers, topics, **options)
        self._registry_port = options.get("schema_registry", False)
        self._registry: RegistryServer | None = None
        self._remote_brokers: Sequence[RemoteBroker] | None = None
        """The brokers of the cluster that answers behind a :class:`Proxy`."""
        self._server: ClusterServer | None = None
        self._thread: LoopThread | None = None
        self._condition = threading.Condition()
        self._changes = 0
        self._waiters = 0

    # Start and stop

    def start(self) -> None:
        """Start the thread; every broker listens when this returns."""
        if self._thread is not None:
            raise IllegalStateError("the cluster is already started")
        registry: RegistryServer | None = None
        if self._registry_port is not False:
            # Most clusters do not need an HTTP server.
            from kohort.testing._schema_registry import RegistryServer

            port = 0 if self._registry_port is True else self._registry_port
            registry = RegistryServer(self._config.host, port)
        try:
            thread = LoopThread("kohort-cluster", self._serve)
            thread.start()
        except BaseException:
            if registry is not None:
                registry.close()
            raise
        self._thread, self._registry = thread, registry

    def stop(self) -> None:
        """Close every connection, end the thread and discard the stored records."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            self._server = None
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.close()

    @property
    def schema_registry_url(self) -> str:
        """The address of the schema registry, such as ``http://127.0.0.1:8081``."""
        if self._registry is None:
            raise IllegalStateError(
                "no schema registry is running: use `with Cluster(schema_registry=True)`"
            )
        host = self._config.advertised_host or self._config.host
        return f"http://{host}:{self._registry.port}"

    async def _serve(self, started: Callable[[], None]) -> None:
        network = LoopbackNetwork(self._config)
        server = self._server = ClusterServer(self._config, network, self._changed)
        if self._remote_brokers is not None:
            server.dispatcher.other = Relay(self._remote_brokers, server.state.all_nodes)
        server.listen()
        started()
        await server.run()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        await anyio.to_thread.run_sync(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.stop)

    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        """Run a function on the cluster in the cluster's thread."""
        thread, server = self._thread, self._server
        if thread is None or server is None:
            raise IllegalStateError("the cluster is not running: use `with Cluster() as cluster:`")
        return thread.call(function, server)

    def _await_end(self, broker: Broker) -> None:
        if self._thread is not None:
            self._thread.wait(broker.stopped.wait)

    # Waiting

    def wait_until(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait until the predicate returns a true value, and return that value.

        The predicate is called again after each change in the cluster. KafkaTimeoutError after
        ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            seen = self._changes
            if result := predicate():
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                raise timed_out(predicate, timeout)
            with self._condition:
                self._waiters += 1
                try:
                    if self._changes == seen:
                        self._condition.wait(min(left, _POLL_INTERVAL))
                finally:
                    self._waiters -= 1

    def wait_for_group(
        self, group_id: str, members: int | None = None, timeout: float = 10.0
    ) -> GroupSnapshot:
        """Wait until a group is stable, with this number of members, and return it.

        0 members means that the group is empty or does not exist. KafkaTimeoutError says what the
        group was after ``timeout`` seconds.
        """
        found = self.wait_until(self._has_members(group_id, members), timeout)
        assert found is not None
        return found

    def wait_for_lag(self, group_id: str, lag: int = 0, timeout: float = 10.0) -> None:
        """Wait until a group has committed offsets that are at most ``lag`` behind in all.

        A group without a commit is not done. KafkaTimeoutError names the partitions.
        """
        self.wait_until(self._is_done(group_id, lag), timeout)

    async def wait_until_async(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait like :meth:`wait_until`, without blocking the event loop."""
        deadline = anyio.current_time() + timeout
        while not (result := predicate()):
            if anyio.current_time() >= deadline:
                raise timed_out(predicate, timeout)
            await anyio.sleep(_POLL_INTERVAL_ASYNC)
        return result

    def _changed(self) -> None:
        """Count a change and wake up the waiting threads. The cluster's thread calls it often."""
        self._changes += 1
        if self._waiters:
            with self._condition:
                self._condition.notify_all()
