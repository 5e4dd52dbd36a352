"""Types of the connections to brokers, for the option ``connect``.

A function of this option opens a connection in place of TCP. It may wrap any stream of anyio in a
:class:`StreamConnection`.
"""

from __future__ import annotations

from kohort.transport import ByteConnection, Connect, StreamConnection

__all__ = ["ByteConnection", "Connect", "StreamConnection"]
