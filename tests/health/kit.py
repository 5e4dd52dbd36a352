"""Requests to the probes, as a platform sends them."""

from __future__ import annotations

import http.client
import json
from typing import Any

LIMIT = 90.0
"""Seconds until a test fails."""


def request(port: int, path: str, *, method: str = "GET", host: str = "127.0.0.1") -> Any:
    """Return status, headers and body of a response."""
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the health of a probe."""
    status, _, body = request(port, path)
    return status, json.loads(body)
