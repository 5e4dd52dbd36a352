"""Life of a cluster: brokers that listen, start, are killed and lose their sessions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import anyio
from anyio.abc import TaskGroup

from kohort.broker._broker_node import BrokerNode
from kohort.broker.cluster._broker import Broker
from kohort.broker.cluster._cluster_state import ClusterState
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.network._network import Network
from kohort.broker.requests._dispatch import RequestDispatcher
from kohort.errors import IllegalStateError


class ClusterServer:
    """Brokers of a cluster, created and used in one event loop.

    ``network`` connects clients to brokers. ``changed`` is called after each change that an
    observer may wait for. ``started_ms`` replaces the present wall-clock time.
    """

    def __init__(
        self,
        config: ClusterConfig,
        network: Network,
        changed: Callable[[], None] = lambda: None,
        started_ms: int | None = None,
    ) -> None:
        self.brokers: dict[int, Broker] = {}
        """Running brokers by id."""
        self.state: ClusterState = ClusterState(config, self.brokers, changed, started_ms)
        self.dispatcher: RequestDispatcher = RequestDispatcher(config.seed or 0)
        self._network = network
        self._tasks: TaskGroup | None = None
        self._sessions_changed = anyio.Event()
        for node in self.state.all_nodes:
            self.brokers[node.id] = self._make_broker(node)
            self.state.registry.register(node.id)
        for name, partitions in config.topics.items():
            self.state.create_topic(name, partitions)

    def listen(self) -> None:
        """Let every broker listen. If one of them cannot, none listens, and OSError is raised."""
        with ExitStack() as opened:
            opened.callback(self._network.close)
            for broker in self.brokers.values():
                self._network.listen(broker)
            opened.pop_all()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for broker in list(self.brokers.values()):
                    self._tasks.start_soon(self._run, broker)
                self._tasks.start_soon(self.state.cleaner.run)
                await self._watch_sessions()
        finally:
            self._network.close()
            self.state.security.certificates.close()
            self._free_logs()

    async def _run(self, broker: Broker) -> None:
        try:
            with broker.cancel_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(broker.coordinator.run)
                    tasks.start_soon(broker.transactions.run)
                    tasks.start_soon(broker.share_leader.run)
                    await self._network.serve(broker, self.dispatcher, tasks)
        finally:
            self._network.stop_listening(broker)
            broker.stopped.set()

    def _free_logs(self) -> None:
        """Free the stored batches. The other parts form reference cycles that the GC frees
        later.
        """
        for partition in self.state.topics.partitions():
            partition.log.discard()
        self.dispatcher.requests.clear()

    def broker(self, node_id: int) -> Broker:
        """Return a running broker; IllegalStateError if it does not run."""
        if node_id not in self.brokers:
            raise IllegalStateError(
                f"broker {node_id} is not running. Running brokers: {sorted(self.brokers)}"
            )
        return self.brokers[node_id]

    def kill_broker(self, node_id: int) -> Broker:
        """Stop a broker immediately. Its partitions get new leaders when its session expires."""
        broker = self.broker(node_id)
        del self.brokers[node_id]
        broker.kill()
        self.state.registry.mark_lost(node_id, anyio.current_time())
        self._expire_sessions()
        self._sessions_changed.set()
        self.state.changed()
        return broker

    def start_broker(self, node_id: int) -> None:
        """Start a broker that was killed, on its old port. It keeps only the logs."""
        node = next((node for node in self.state.all_nodes if node.id == node_id), None)
        if node is None or node_id in self.brokers:
            raise IllegalStateError(f"broker {node_id} cannot start: it was not killed")
        if node_id in self.state.registry:
            self._remove(node_id)
        broker = self._make_broker(node)
        self._network.listen(broker)
        self.brokers[node_id] = broker
        self.state.registry.register(node_id)
        self.state.controller.on_broker_registered(node_id)
        if self._tasks is not None:  # otherwise run() starts it
            self._tasks.start_soon(self._run, broker)
        self.state.changed()

    async def _watch_sessions(self) -> None:
        while True:
            self._sessions_changed = anyio.Event()
            with anyio.CancelScope(deadline=self.state.registry.next_expiry()):
                await self._sessions_changed.wait()
            self._expire_sessions()

    def _expire_sessions(self) -> None:
        for node_id in self.state.registry.expired_nodes(anyio.current_time()):
            self._remove(node_id)

    def _remove(self, node_id: int) -> None:
        self.state.registry.close(node_id)
        self.state.controller.on_broker_unregistered(node_id)
        self.state.changed()

    def _make_broker(self, node: BrokerNode) -> Broker:
        state = self.state
        return Broker(
            state,
            node,
            state.make_group_coordinator(node),
            state.transaction_router.make_coordinator(),
            state.share_router.make_coordinator(),
            state.share_router.make_leader(node),
        )
