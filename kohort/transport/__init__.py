"""Connections to brokers, cluster metadata, and the choice of a broker for a request.

Everything here belongs to one event loop, asyncio's or trio's, and takes no locks. Only reading a
:class:`ClusterMetadata` and releasing a lease are safe from other threads.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.transport._backoff import SYSTEM_RNG, Backoff
from kohort.transport._printable import RepeatedLog, counted, in_seconds, with_principal
from kohort.transport.cluster._cluster import ClusterClient, is_end_of_client
from kohort.transport.cluster._metadata import (
    BrokerAddress,
    ClusterMetadata,
    Leader,
    PartitionMetadata,
    TopicMetadata,
)
from kohort.transport.cluster._metadata_refresh import MetadataCallback
from kohort.transport.connection._connection import BrokerConnection
from kohort.transport.connection._frames import Leased, OversizedFrameError
from kohort.transport.connection._handshake import versions_request
from kohort.transport.connection._pool import BufferLease, BufferPool
from kohort.transport.connection._response_reader import Line
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.transport.network._lifetimes import start_soon, weak_callback
from kohort.transport.network._loop import (
    OneShot,
    TaskSignal,
    callback_loop,
    frame_selector,
    running_clock,
)
from kohort.transport.network._stream import StreamConnection
from kohort.transport.network._tcp import TcpConnection, TcpConnector
from kohort.types import escaped

__all__ = [
    "NETWORK_ERRORS",
    "SYSTEM_RNG",
    "Backoff",
    "BrokerAddress",
    "BrokerConnection",
    "BufferLease",
    "BufferPool",
    "ByteConnection",
    "ClusterClient",
    "ClusterMetadata",
    "Connect",
    "Leader",
    "Leased",
    "Line",
    "MetadataCallback",
    "OneShot",
    "OversizedFrameError",
    "PartitionMetadata",
    "RepeatedLog",
    "StreamConnection",
    "TaskSignal",
    "TcpConnection",
    "TcpConnector",
    "TopicMetadata",
    "callback_loop",
    "counted",
    "escaped",
    "frame_selector",
    "in_seconds",
    "is_end_of_client",
    "running_clock",
    "start_soon",
    "versions_request",
    "weak_callback",
    "with_principal",
]
