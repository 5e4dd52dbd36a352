"""Identity of a broker, and the parts of a running one that the cluster's state uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kohort.broker.groups import GroupCoordinator
from kohort.broker.share import ShareCoordinator, ShareLeader
from kohort.broker.transactions import TransactionCoordinator


@dataclass(slots=True)
class BrokerNode:
    """Id, addresses and rack of a broker.

    ``ports`` maps each listener to its port, which is 0 before the broker listens.
    """

    id: int
    host: str
    ports: dict[str, int] = field(default_factory=dict)
    rack: str | None = None

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()), 0)


class RunningBroker(Protocol):
    """Coordinators of a broker that runs."""

    node: BrokerNode
    coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_leader: ShareLeader
