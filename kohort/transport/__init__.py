"""Connections to brokers, cluster metadata, and the choice of a broker for a request.

Everything here belongs to one event loop, asyncio's or trio's, and takes no locks. Only reading a
:class:`ClusterMetadata` and releasing a lease are safe from other threads.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.transport._backoff import SYSTEM_RNG, Backoff
from kohort.transport._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.transport._cluster import ClusterClient
from kohort.transport._connection import BrokerConnection
from kohort.transport._frames import OversizedFrameError
from kohort.transport._handshake import versions_request
from kohort.transport._leased import Leased
from kohort.transport._lifetimes import Started, start_soon, weak_callback
from kohort.transport._loop import frame_selector, running_clock
from kohort.transport._metadata import (
    BrokerAddress,
    ClusterMetadata,
    Leader,
    PartitionMetadata,
    TopicMetadata,
)
from kohort.transport._metadata_updater import MetadataCallback
from kohort.transport._pool import BufferLease, BufferPool
from kohort.transport._printable import counted, in_seconds, with_principal
from kohort.transport._repeats import RepeatedLog
from kohort.transport._response_reader import Line
from kohort.transport._stream import StreamConnection
from kohort.transport._tcp import TcpConnection, TcpConnector
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
    "OversizedFrameError",
    "PartitionMetadata",
    "RepeatedLog",
    "Started",
    "StreamConnection",
    "TcpConnection",
    "TcpConnector",
    "TopicMetadata",
    "counted",
    "escaped",
    "frame_selector",
    "in_seconds",
    "running_clock",
    "start_soon",
    "versions_request",
    "weak_callback",
    "with_principal",
]
