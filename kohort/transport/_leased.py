"""Leased: a response whose bytes are in a pooled buffer."""

from __future__ import annotations

from typing import Generic, TypeVar

from kohort.protocol import Response
from kohort.transport._frames import Frame

R = TypeVar("R", bound=Response)


class Leased(Generic[R]):
    """A response whose bytes are in a pooled buffer until its release, from any thread."""

    __slots__ = ("_frame", "_response")

    def __init__(self, response: R, frame: Frame) -> None:
        self._response: R | None = response
        self._frame = frame

    @property
    def is_pooled(self) -> bool:
        """True if the buffer returns to the pool. Otherwise the response owns its bytes."""
        return self._frame.is_pooled

    @property
    def response(self) -> R:
        """The response. Raises ValueError after its release."""
        if self._response is None:
            raise ValueError("the response is released")
        return self._response

    def release(self) -> None:
        """Return the buffer to the pool. A second call does nothing."""
        self._response = None
        self._frame.release()
