"""A client's connection as the broker uses it: origin, listener and login."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.broker._broker import Broker
from kohort.broker.security import ANONYMOUS, ClientLogin, Listener


@dataclass(eq=False, slots=True)
class Channel:
    """One connection. ``client_host`` has Kafka's format: ``/127.0.0.1``."""

    client_host: str
    login: ClientLogin

    @classmethod
    def open(
        cls, broker: Broker, listener: Listener, peer_host: str, principal: str = ANONYMOUS
    ) -> Channel:
        """Return the channel of a new connection to a listener of a broker."""
        core = broker.cluster
        login = ClientLogin(core.security, listener, core.time, principal)
        return cls(f"/{peer_host}", login)
