"""Choice of the node for a request that any broker can answer, such as one for metadata."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Protocol

from kohort.transport.cluster._metadata import BrokerAddress


class Candidate(Protocol):
    """The part of a node that the choice needs."""

    broker: BrokerAddress
    failures: int
    """Number of failures in a row."""
    not_before: float
    """End of the back-off."""

    @property
    def load(self) -> int: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def idle_since(self) -> float: ...

    def is_silent(self, seconds: float) -> bool:
        """True if its connections may be dead."""
        ...


def least_loaded(
    brokers: Collection[Candidate],
    bootstrap: Collection[Candidate],
    now: float,
    rng: random.Random,
    *,
    longest_silence: float,
    may_rebootstrap: bool,
) -> int | None:
    """Return the node with the fewest requests in flight.

    A new connection takes two round trips, so among equally loaded nodes connected ones come first,
    then the one that was idle longest. Nodes in back-off are left out, and None is returned if no
    node is left. A bootstrap address is returned only if no broker is left (KIP-899). Without
    ``may_rebootstrap`` it is returned only if no broker is known. Of the bootstrap addresses
    without requests, the one with the fewest failures in a row is returned. Nodes whose connections
    got no response for ``longest_silence`` seconds come last.
    """
    taken = {(node.broker.host, node.broker.port) for node in brokers}
    spare = [
        node
        for node in bootstrap
        if (node.broker.host, node.broker.port) not in taken and (may_rebootstrap or not brokers)
    ]
    for nodes in (brokers, spare):
        ready = [node for node in nodes if node.not_before <= now]
        if ready:
            ranks = [
                # Each bootstrap address is tried before another one is tried again.
                (
                    node.load,
                    node.failures if nodes is spare else 0,
                    node.is_silent(longest_silence),
                    not node.is_connected,
                    node.idle_since,
                )
                for node in ready
            ]
            best = min(ranks)
            return rng.choice(
                [node.broker.id for node, rank in zip(ready, ranks, strict=True) if rank == best]
            )
    return None
