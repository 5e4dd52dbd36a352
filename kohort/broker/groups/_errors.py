"""Errors of requests to consumer groups and share groups."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse


class GroupRequestError(Exception):
    """A refused request, with Kafka's error code and message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


def heartbeat_error(refusal: GroupRequestError) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a refused heartbeat."""
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
