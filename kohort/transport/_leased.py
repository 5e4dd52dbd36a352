"""Responses whose bytes are in a pooled buffer."""

from __future__ import annotations

from typing import Generic, TypeVar

from kohort.protocol import Response
from kohort.transport._frames import Frame

R = TypeVar("R", bound=Response)


class Leased(Generic[R]):
    """An answer whose bytes are in a pooled buffer until it is released, from any thread."""

    __slots__ = ("_frame", "_response")

    def __init__(self, response: R, frame: Frame) -> None:
        self._response: R | None = response
        self._frame = frame

    @property
    def is_pooled(self) -> bool:
        """True if the buffer is used again. The response owns its bytes otherwise."""
        return self._frame.is_pooled

    @property
    def response(self) -> R:
        """The answer; ValueError when it is released."""
        if self._response is None:
            raise ValueError("the answer is released")
        return self._response

    def release(self) -> None:
        """The bytes are copied or not wanted any more. The second time does nothing."""
        self._response = None
        self._frame.release()
