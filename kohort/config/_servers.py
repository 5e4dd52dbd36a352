"""Type of ``bootstrap_servers``, which takes ``host``, ``host:port`` and ``[ipv6]:port``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.config._option_types import OptionType

DEFAULT_PORT = 9092


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
