"""Options of connections, requests and metadata."""

from __future__ import annotations

import socket
from dataclasses import field

from kohort.config._option import Section, invalid, option, section
from kohort.config._option_types import Boolean, Integer, OneOf, SocketOptions, Text
from kohort.config._servers import DEFAULT_PORT, Servers

_OS_DEFAULT = {None: None, -1: None, 0: None}


@section
class RequestOptions(Section):
    """What everything that sends requests needs; each of the parts has a copy."""

    request_timeout_ms: int = field(
        default=30_000,
        metadata=option(
            Integer(1),
            "How long a request may take before its connection is given up.",
            unit="ms",
            also=("socket.timeout.ms",),
        ),
    )
    retry_backoff_ms: int = field(
        default=100,
        metadata=option(
            Integer(0), "Pause before the first retry of a failed request; doubles.", unit="ms"
        ),
    )
    retry_backoff_max_ms: int = field(
        default=1_000,
        metadata=option(Integer(0), "The longest pause between two retries.", unit="ms"),
    )

    def _check_together(self) -> None:
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise invalid(
                "retry_backoff_ms",
                self.retry_backoff_ms,
                f"at most retry_backoff_max_ms ({self.retry_backoff_max_ms})",
            )


@section
class ClientConfig(RequestOptions):
    """What the transport needs."""

    bootstrap_servers: tuple[tuple[str, int], ...] = field(
        default=(("localhost", DEFAULT_PORT),),
        metadata=option(
            Servers(),
            "Where to ask for the cluster first; a few brokers are enough. Port 9092 if none.",
            also=("metadata.broker.list",),
            shown_default='"localhost:9092"',
        ),
    )
    bootstrap_timeout_ms: int = field(
        default=30_000,
        metadata=option(
            Integer(0),
            "How long no bootstrap server may be reachable before NoBrokersAvailable is raised.",
            unit="ms",
            properties=(),
        ),
    )
    client_id: str = field(
        default="kohort",
        metadata=option(Text(), "A name for this client in the brokers' logs, metrics and quotas."),
    )
    connections_max_idle_ms: int | None = field(
        default=540_000,
        metadata=option(
            Integer(1, special={None: None, -1: None, 0: None}, expected="an int above 0, or None"),
            "Close a connection that was idle for so long; None keeps it.",
            unit="ms",
        ),
    )
    socket_connection_setup_timeout_ms: int = field(
        default=10_000,
        metadata=option(Integer(1), "How long connecting to one address may take.", unit="ms"),
    )
    reconnect_backoff_ms: int = field(
        default=50,
        metadata=option(
            Integer(0),
            "Pause before a broker is tried again after a failed connection; doubles, with jitter.",
            unit="ms",
        ),
    )
    reconnect_backoff_max_ms: int = field(
        default=1_000,
        metadata=option(
            Integer(0), "The longest pause between two connection attempts.", unit="ms"
        ),
    )
    max_in_flight_requests_per_connection: int = field(
        default=5,
        metadata=option(
            Integer(1),
            "How many requests may wait for their answers on one connection.",
            also=("max.in.flight",),
        ),
    )
    metadata_max_age_ms: int = field(
        default=300_000,
        metadata=option(
            Integer(0),
            "Metadata older than this is asked for anew, to notice new topics and partitions.",
            unit="ms",
            also=("topic.metadata.refresh.interval.ms",),
        ),
    )
    metadata_recovery_strategy: str = field(
        default="rebootstrap",
        metadata=option(
            OneOf("rebootstrap", "none"),
            "rebootstrap asks the bootstrap servers again when no known broker can be reached, or "
            "when a broker asks for it (KIP-899, KIP-1102); none never does.",
        ),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = field(
        default=300_000,
        metadata=option(
            Integer(0),
            "With rebootstrap: start again from the bootstrap servers when the known brokers have "
            "not given any metadata for so long.",
            unit="ms",
        ),
    )
    allow_auto_create_topics: bool = field(
        default=True,
        metadata=option(
            Boolean(),
            "Let subscribe() and assign() create missing topics, if the brokers allow that. "
            "Look-ups create none.",
        ),
    )
    receive_message_max_bytes: int = field(
        default=100_000_000,
        metadata=option(
            Integer(1_000),
            "The largest frame accepted; raised to fetch_max_bytes + max_partition_fetch_bytes.",
            unit="bytes",
        ),
    )
    receive_buffer_bytes: int | None = field(
        default=None,
        metadata=option(
            Integer(1, special=_OS_DEFAULT, expected="an int above 0, or None"),
            "SO_RCVBUF of connections; None leaves it to the system.",
            unit="bytes",
            also=("socket.receive.buffer.bytes",),
        ),
    )
    send_buffer_bytes: int | None = field(
        default=None,
        metadata=option(
            Integer(1, special=_OS_DEFAULT, expected="an int above 0, or None"),
            "SO_SNDBUF of connections; None leaves it to the system.",
            unit="bytes",
            also=("socket.send.buffer.bytes",),
        ),
    )
    socket_options: tuple[tuple[int, int, int | bytes], ...] = field(
        default=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
        metadata=option(
            SocketOptions(),
            "Further socket options, set on each connection.",
            properties=(),
            shown_default="[(IPPROTO_TCP, TCP_NODELAY, 1)]",
        ),
    )

    def _check_together(self) -> None:
        RequestOptions._check_together(self)
        if self.reconnect_backoff_ms > self.reconnect_backoff_max_ms:
            raise invalid(
                "reconnect_backoff_ms",
                self.reconnect_backoff_ms,
                f"at most reconnect_backoff_max_ms ({self.reconnect_backoff_max_ms})",
            )
