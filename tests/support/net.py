"""Loopback ports, and a check of whether a broker is up that needs no client library."""

from __future__ import annotations

import random
import socket
import struct

# ApiVersions v0 has length, api key 18, version 0, correlation id 1, and a null client id.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


CANDIDATES = range(15_000, 32_000)
"""Ports below those that systems use for outgoing connections, which could take one."""


def free_ports(count: int) -> list[int]:
    """Return ``count`` different loopback ports on which no process listens now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(CANDIDATES, len(CANDIDATES)):
        if len(found) == count:
            break
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def answers_api_versions(port: int, timeout_s: float = 2.0) -> bool:
    """True if a broker on the port responds to an ApiVersions request without an error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as link:
            link.sendall(API_VERSIONS_REQUEST)
            with link.makefile("rb") as stream:
                head = stream.read(10)  # length, correlation id, error code
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)
