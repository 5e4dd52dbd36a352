"""Ends of the partitions of a group member, and the requests for them."""

from __future__ import annotations

from kohort import TopicPartition


class PartitionEnds:
    """Known ends, the topic ids that belong to them, and the number of the last request."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        """Topic ids, looked up after the ends."""
        self.requested = 0
        self.is_urgent = False
        """True if the ends are needed before the next regular lookup."""
        self._answered = 0

    def request(self, *, urgent: bool) -> int:
        """Request all ends. Return the number of the request."""
        self.is_urgent = self.is_urgent or urgent
        self.requested += 1
        return self.requested

    def answer(self, request: int) -> None:
        """Mark a request and all earlier ones as completed."""
        self._answered, self.is_urgent = request, False

    def has_answered(self, request: int) -> bool:
        return self._answered >= request
