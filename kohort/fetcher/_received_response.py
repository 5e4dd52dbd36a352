"""The response to one fetch, from its arrival to the notes for the next fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.fetcher._cluster_view import Leased
from kohort.fetcher._completed import CompletedFetch
from kohort.fetcher._errors import Failure, Then
from kohort.fetcher._request import Answer
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse


class ReceivedResponse:
    """A response and its outcome.

    The callback that receives the response takes it. The task of the fetch notes the rest later,
    while the caller may already read the records.
    """

    __slots__ = (
        "answers",
        "begun",
        "error",
        "had_room",
        "has_no_errors",
        "is_caller_notified",
        "is_ready",
        "largest",
        "now",
        "response",
        "size",
        "taken",
        "there",
    )

    def __init__(self) -> None:
        self.response: FetchResponse | None = None
        self.has_no_errors = False
        """True if the response contains no error codes."""
        self.size = 0
        """Bytes of the batches."""
        self.largest = 0
        """Bytes of the batches of one partition, at most."""
        self.had_room = False
        """True if the response could have contained more."""
        self.begun = self.taken = False
        """Taking it began, and ended without an exception."""
        self.error: Exception | None = None
        """The exception in the callback."""
        self.now = 0.0
        self.there: dict[TopicPartition, FetchResponse.PartitionData] = {}
        self.answers: dict[TopicPartition, Answer] = {}
        self.is_ready = False
        """True if there is something new to drain."""
        self.is_caller_notified = False
        """True if the caller was notified."""

    def receive(self, leased: Leased[FetchResponse], max_bytes: int) -> None:
        """Note the response to a fetch of ``max_bytes``."""
        response = self.response = leased.response
        size, largest, plain = 0, 0, not response.error_code
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    size += (length := len(data.records))
                    if length > largest:
                        largest = length
                if data.error_code:
                    plain = False
        self.size, self.largest, self.has_no_errors = size, largest, plain
        self.had_room = 2 * size <= max_bytes

    def is_empty(self) -> bool:
        """True if no partition has data or other news."""
        for answer in self.answers.values():
            if isinstance(answer, Failure):
                if answer.then is not Then.STAND:  # a reset may follow, and the same again
                    return False
            elif not isinstance(answer, CompletedFetch) or answer.size:
                return False
        return True
