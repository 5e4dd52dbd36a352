"""Loopback ports, and asking whether a broker is up, without any client library."""

from __future__ import annotations

import random
import socket
import struct

# ApiVersions v0: length, api key 18, version 0, correlation id 1, client id null.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


CANDIDATES = range(15_000, 32_000)
"""Below the ports that systems give to outgoing connections: none of those gets in between."""


def free_ports(count: int) -> list[int]:
    """That many different loopback ports which nobody listens on now."""
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
    """Whether a broker on the port answers an ApiVersions request without an error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as link:
            link.sendall(API_VERSIONS_REQUEST)
            with link.makefile("rb") as stream:
                head = stream.read(10)  # length, correlation id, error code
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)
