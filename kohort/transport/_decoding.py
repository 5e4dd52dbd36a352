"""Decoding of frames to responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kohort.protocol import Response, decode_response
from kohort.transport._frames import Frame
from kohort.transport._leased import Leased

R = TypeVar("R", bound=Response)

MAX_THROTTLE_MS = 60_000
"""Longest pause that a broker may request (KIP-219)."""


def decoded(kind: type[R], version: int, frame: Frame) -> R:
    """Return the response in a frame. Raises MessageDecodeError."""
    _, response = decode_response(kind, version, frame.data)
    _bound_throttle(response)
    return response


def respond(
    kind: type[R], version: int, on_response: Callable[[Leased[R]], None], frame: Frame
) -> R | None:
    """Decode a response and pass it on. Return None on failure, which the task then raises."""
    try:
        response = decoded(kind, version, frame)
    except Exception:
        return None
    on_response(Leased(response, frame))
    return response


def _bound_throttle(response: Any) -> None:
    requested = getattr(response, "throttle_time_ms", 0)
    if not 0 <= requested <= MAX_THROTTLE_MS:
        response.throttle_time_ms = min(max(requested, 0), MAX_THROTTLE_MS)
