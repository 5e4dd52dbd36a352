"""The cluster as a test holds it: in a thread of its own, with eyes into it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

import anyio
import anyio.to_thread

from kohort.errors import IllegalStateError
from kohort.testing._broker import Broker
from kohort.testing._configs import MAX_REQUEST_BYTES, ClusterConfig, group_limits
from kohort.testing._core import ClusterCore
from kohort.testing._given_configs import with_configs
from kohort.testing._handle import ClusterHandle, timed_out
from kohort.testing._loopback import LoopbackNetwork
from kohort.testing._thread import LoopThread
from kohort.testing.security import PLAINTEXT_ONLY, Security
from kohort.testing.transactions import TransactionConfig

T = TypeVar("T")

_POLL_INTERVAL = 0.05
"""Seconds: a predicate may also wait for something outside of the cluster."""
_POLL_INTERVAL_ASYNC = 0.005


class Cluster(ClusterHandle):
    """A Kafka cluster in this process; a context manager, sync and async.

    It speaks the real protocol on loopback ports to whatever client connects, in this process or
    another one, and serves from a daemon thread of its own.

    ``topics``: name -> partitions, None for the default number. ``ports``: one for each broker, or
    the first one's, with the others' behind it; free ones if not given. ``racks``: one for each
    broker; clients that say where they are then read from a replica of their rack (KIP-392).
    ``group_initial_rebalance_delay_ms`` and the names in ``group_settings`` are Kafka's without
    the ``group.``; Kafka's own delay is 3,000.
    ``broker_session_timeout_ms`` is how long the others wait for a broker that was killed before
    they take over what it led; Kafka's own is 9,000. With 0, librdkafka's transactional producer
    waits for ever when the coordinator of its consumer's group is killed.
    ``log_retention_check_interval_ms`` is how often records are deleted that ``retention.ms`` or
    ``retention.bytes`` of their topics do not let it keep. ``transaction_version`` 2 lets producers
    go by KIP-890, 0 and 1 do not.
    ``configs``: broker configs by Kafka's names, such as ``{"group.min.session.timeout.ms": 500}``;
    InvalidOptionError for one that Kafka does not have. ``seed`` decides all that is random.
    ``security``: listeners, users and certificates; one PLAINTEXT listener by default.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int | None] | None = None,
        *,
        default_partitions: int = 1,
        auto_create_topics: bool = True,
        host: str = "127.0.0.1",
        ports: Sequence[int] | int | None = None,
        advertised_host: str | None = None,
        replication_factor: int | None = None,
        racks: Sequence[str] | None = None,
        group_initial_rebalance_delay_ms: int = 0,
        group_settings: Mapping[str, int] | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        broker_session_timeout_ms: int = 500,
        log_retention_check_interval_ms: int = 300_000,
        transaction_version: int = 2,
        configs: Mapping[str, object] | None = None,
        security: Security = PLAINTEXT_ONLY,
        seed: int = 0,
    ) -> None:
        super().__init__()
        config = ClusterConfig(
            brokers=brokers,
            topics=dict(topics or {}),
            default_partitions=default_partitions,
            auto_create_topics=auto_create_topics,
            host=host,
            ports=ports,
            advertised_host=advertised_host,
            replication_factor=replication_factor,
            racks=racks,
            max_request_bytes=max_request_bytes,
            broker_session_timeout_ms=broker_session_timeout_ms,
            log_retention_check_interval_ms=log_retention_check_interval_ms,
            seed=seed,
            groups=group_limits(group_settings, group_initial_rebalance_delay_ms),
            transactions=TransactionConfig(version=transaction_version),
            security=security,
        )
        self._config = with_configs(config, configs)
        self._config.validate()
        self._core: ClusterCore | None = None
        self._thread: LoopThread | None = None
        self._change = threading.Condition()
        self._changes = 0
        self._watchers = 0

    # Life

    def start(self) -> None:
        """Serve until :meth:`stop`; every broker listens when this returns."""
        if self._thread is not None:
            raise IllegalStateError("the cluster is started already")
        thread = LoopThread("kohort-cluster", self._serve)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Close every connection and end the thread; what was stored is gone."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            self._core = None

    async def _serve(self, started: Callable[[], None]) -> None:
        core = self._core = ClusterCore(self._config, LoopbackNetwork(self._config), self._changed)
        core.listen()
        started()
        await core.run()

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

    def _call(self, function: Callable[[ClusterCore], T]) -> T:
        """Run a function on the cluster in the cluster's thread."""
        thread, core = self._thread, self._core
        if thread is None or core is None:
            raise IllegalStateError("the cluster is not running: use `with Cluster() as cluster:`")
        return thread.call(function, core)

    def _await_end(self, broker: Broker) -> None:
        if self._thread is not None:
            self._thread.wait(broker.stopped.wait)

    # Waiting

    def wait_until(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Return what the predicate returns as soon as that is true.

        It is asked again whenever something changes in the cluster. KafkaTimeoutError after
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
            with self._change:
                self._watchers += 1
                try:
                    if self._changes == seen:
                        self._change.wait(min(left, _POLL_INTERVAL))
                finally:
                    self._watchers -= 1

    async def wait_until_async(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """As :meth:`wait_until`, without blocking the event loop."""
        deadline = anyio.current_time() + timeout
        while not (result := predicate()):
            if anyio.current_time() >= deadline:
                raise timed_out(predicate, timeout)
            await anyio.sleep(_POLL_INTERVAL_ASYNC)
        return result

    def _changed(self) -> None:
        """Called in the cluster's thread, often."""
        self._changes += 1
        if self._watchers:
            with self._change:
                self._change.notify_all()
