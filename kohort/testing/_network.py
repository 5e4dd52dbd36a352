"""What the cluster asks of a network: that its brokers can be reached."""

from __future__ import annotations

from typing import Protocol

from anyio.abc import TaskGroup

from kohort.testing._broker import Broker


class Network(Protocol):
    """Leads clients to brokers, each at the host and port of its node."""

    def listen(self, broker: Broker) -> None:
        """Clients can connect from now on; gives the node its port, the first time."""
        ...

    async def serve(self, broker: Broker, tasks: TaskGroup) -> None:
        """Start a task for each connection, until cancelled."""
        ...

    def stop_listening(self, broker: Broker) -> None:
        """The broker runs no more. Its port stays its own."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
