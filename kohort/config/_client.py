"""Sections of options for sending requests and for the transport, and the type of its servers."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from kohort.config.options._option import Section, invalid, option, section
from kohort.config.options._option_types import (
    Boolean,
    Integer,
    OneOf,
    OptionType,
    SocketOptions,
    Text,
)

CLOSE_TIMEOUT: Final = 5.0
"""Most seconds that closing takes, with leaving the group, unless the caller gives a timeout.

It is an argument of close(), and not an option.
"""
DEFAULT_PORT = 9092
_OS_DEFAULT = {None: None, -1: None, 0: None}


class Servers(OptionType):
    """One or more addresses. The normal form is a tuple of (host, port)."""

    expected = '"host:port", "host1:port1,host2:port2", "[ipv6]:port", or a list of these'
    annotation = "str | tuple[str, int] | Sequence[str | tuple[str, int]]"

    def check(self, value: Any) -> tuple[tuple[str, int], ...]:
        entries = value.split(",") if isinstance(value, str) else _entries(value)
        # An entry may be a comma list. Duplicates would skew the choice of the first server.
        servers = dict.fromkeys(server for entry in entries for server in _servers(entry))
        if not servers:
            raise ValueError("no address")
        return tuple(servers)


def _entries(value: Any) -> list[Any]:
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError("neither a str nor a list")
    entries = list(value)
    if len(entries) == 2 and isinstance(entries[0], str) and isinstance(entries[1], int):
        # This is one (host, port) and not two addresses, unless the host has a port already.
        return [tuple(entries)] if isinstance(value, tuple) or ":" not in entries[0] else entries
    return entries


def _servers(entry: Any) -> list[tuple[str, int]]:
    if isinstance(entry, str):
        return [parse_server(part) for part in entry.split(",")]
    match entry:
        case (str(host), int(port)) if not isinstance(port, bool):
            return [(_host(host, entry), _port(port, entry))]
    raise TypeError(f"{entry!r} is neither host:port nor (host, port)")


def parse_server(text: str) -> tuple[str, int]:
    """Return (host, port) of an address, which may begin with ``PLAINTEXT://``."""
    address = text.strip()
    scheme, separator, rest = address.partition("://")
    if separator:
        if scheme.upper() != "PLAINTEXT":
            raise ValueError(f"{scheme}:// is not supported, only PLAINTEXT")
        address = rest
    if address.startswith("["):
        host, bracket, tail = address[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError(f"{text!r} is not [ipv6]:port")
        port = tail[1:] if tail else str(DEFAULT_PORT)
    elif address.count(":") > 1:
        # An IPv6 address without brackets has no port.
        host, port = address, str(DEFAULT_PORT)
    else:
        host, colon, port = address.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} has no valid port")
    return _host(host, text), _port(int(port), text)


def _host(host: str, given: Any) -> str:
    if not host or any(char.isspace() or char in "/@?#[]" for char in host):
        raise ValueError("no valid host")
    return host


def _port(port: int, given: Any) -> int:
    if not 1 <= port <= 65_535:
        raise ValueError(f"{given!r} has no valid port")
    return port


@section
class RequestOptions(Section):
    """Options for sending requests. Each section whose package sends requests inherits them."""

    request_timeout_ms: int = field(
        default=30_000,
        metadata=option(
            Integer(1),
            "Longest time of a request without a response. It begins again with the bytes of a "
            "response that arrive, at least 1 KiB/s. After it the connection is closed.",
            unit="ms",
            also=("socket.timeout.ms",),
        ),
    )
    retry_backoff_ms: int = field(
        default=100,
        metadata=option(
            Integer(0), "Pause before the first retry of a failed request. It doubles.", unit="ms"
        ),
    )
    retry_backoff_max_ms: int = field(
        default=1_000,
        metadata=option(Integer(0), "Longest pause between two retries.", unit="ms"),
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
    """Options of connections, requests and metadata."""

    bootstrap_servers: tuple[tuple[str, int], ...] = field(
        default=(("localhost", DEFAULT_PORT),),
        metadata=option(
            Servers(),
            "Brokers to connect to first. A few are enough. The default port is 9092.",
            also=("metadata.broker.list",),
            shown_default='"localhost:9092"',
        ),
    )
    bootstrap_timeout_ms: int = field(
        default=30_000,
        metadata=option(
            Integer(0),
            "Time without a reachable bootstrap server until NoBrokersAvailable. With `0` the "
            "error comes when each server failed once.",
            unit="ms",
            properties=(),
        ),
    )
    client_id: str = field(
        default="kohort",
        metadata=option(Text(), "Name of this client in the brokers' logs, metrics and quotas."),
    )
    connections_max_idle_ms: int | None = field(
        default=540_000,
        metadata=option(
            Integer(1, special={None: None, -1: None, 0: None}, expected="an int above 0, or None"),
            "Idle time after which a connection is closed. None keeps it open.",
            unit="ms",
        ),
    )
    socket_connection_setup_timeout_ms: int = field(
        default=10_000,
        metadata=option(Integer(1), "Longest time to connect to one address.", unit="ms"),
    )
    reconnect_backoff_ms: int = field(
        default=50,
        metadata=option(
            Integer(0),
            "Pause before the next attempt after a failed connection. It doubles, with jitter.",
            unit="ms",
        ),
    )
    reconnect_backoff_max_ms: int = field(
        default=1_000,
        metadata=option(Integer(0), "Longest pause between two connection attempts.", unit="ms"),
    )
    max_in_flight_requests_per_connection: int = field(
        default=5,
        metadata=option(
            Integer(1),
            "Requests on one connection that may wait for a response.",
            also=("max.in.flight",),
        ),
    )
    metadata_max_age_ms: int = field(
        default=300_000,
        metadata=option(
            Integer(0),
            "Age at which metadata is refreshed, so that new topics and partitions are noticed.",
            unit="ms",
            also=("topic.metadata.refresh.interval.ms",),
        ),
    )
    metadata_recovery_strategy: str = field(
        default="rebootstrap",
        metadata=option(
            OneOf("rebootstrap", "none"),
            "`rebootstrap` uses the bootstrap servers again, `none` never does. It does so if no "
            "known broker responds, or a broker requests it (KIP-899, KIP-1102).",
        ),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = field(
        default=300_000,
        metadata=option(
            Integer(0),
            "Time without metadata from a known broker until metadata_recovery_strategy applies.",
            unit="ms",
        ),
    )
    metadata_cluster_check_enable: bool = field(
        default=True,
        metadata=option(
            Boolean(),
            "Name the cluster and the broker when connecting, so that a broker of another cluster "
            "refuses (KIP-1242). It needs Kafka 4.4 and `rebootstrap`.",
        ),
    )
    allow_auto_create_topics: bool = field(
        default=True,
        metadata=option(
            Boolean(),
            "Let subscribe() and assign() create missing topics, if the brokers allow that. "
            "Look-ups never create topics.",
        ),
    )
    receive_message_max_bytes: int = field(
        default=100_000_000,
        metadata=option(
            Integer(1_000),
            "Largest response. At least fetch_max_bytes + max_partition_fetch_bytes is used.",
            unit="bytes",
        ),
    )
    receive_buffer_bytes: int | None = field(
        default=None,
        metadata=option(
            Integer(1, special=_OS_DEFAULT, expected="an int above 0, or None"),
            "SO_RCVBUF of connections. None keeps the system's default.",
            unit="bytes",
            also=("socket.receive.buffer.bytes",),
        ),
    )
    send_buffer_bytes: int | None = field(
        default=None,
        metadata=option(
            Integer(1, special=_OS_DEFAULT, expected="an int above 0, or None"),
            "SO_SNDBUF of connections. None keeps the system's default.",
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
