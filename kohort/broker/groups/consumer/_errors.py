"""Errors of requests to consumer groups."""

from __future__ import annotations

from kohort.errors import ErrorCode


class GroupRequestError(Exception):
    """A refused request, with Kafka's error code and message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
