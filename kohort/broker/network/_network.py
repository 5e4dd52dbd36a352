"""The interface between the cluster and its network."""

from __future__ import annotations

from typing import Protocol

from anyio.abc import TaskGroup

from kohort.broker.cluster._broker import Broker
from kohort.broker.requests._dispatch import RequestDispatcher


class Network(Protocol):
    """Connections of clients to brokers, each at the host and port of its node."""

    def listen(self, broker: Broker) -> None:
        """Let clients connect from now on; set the node's ports at the first call."""
        ...

    async def serve(self, broker: Broker, dispatcher: RequestDispatcher, tasks: TaskGroup) -> None:
        """Start a task for each connection, until cancelled."""
        ...

    def stop_listening(self, broker: Broker) -> None:
        """Refuse connections to a broker that has stopped; keep its ports for it."""
        ...

    def close(self) -> None:
        """Close all ports."""
        ...
