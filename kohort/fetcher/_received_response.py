"""The response to one fetch, from its arrival to the notes for the next fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.fetcher._cluster_view import PooledResponse
from kohort.fetcher._completed import CompletedFetch
from kohort.fetcher._errors import Failure, FailureAction
from kohort.fetcher._request import FetchResult
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse


class ReceivedResponse:
    """A response and its outcome.

    The callback that receives the response buffers it. The task of the fetch notes the rest later,
    while the caller may already read the records.
    """

    __slots__ = (
        "error",
        "had_room",
        "has_no_errors",
        "is_buffered",
        "is_buffering",
        "is_caller_notified",
        "is_ready",
        "largest",
        "now",
        "partitions",
        "response",
        "results",
        "size",
    )

    def __init__(self) -> None:
        self.response: FetchResponse | None = None
        self.has_no_errors = False
        """True if the response contains no error codes."""
        self.size = 0
        """Bytes of the batches."""
        self.largest = 0
        """Largest bytes of batches of one partition."""
        self.had_room = False
        """True if the response could have contained more."""
        self.is_buffering = self.is_buffered = False
        """True after buffering has begun, and after it has ended without an exception."""
        self.error: Exception | None = None
        """The exception in the callback."""
        self.now = 0.0
        self.partitions: dict[TopicPartition, FetchResponse.PartitionData] = {}
        self.results: dict[TopicPartition, FetchResult] = {}
        self.is_ready = False
        """True if there are new records or errors to drain."""
        self.is_caller_notified = False
        """True if the caller was notified."""

    def receive(self, pooled: PooledResponse[FetchResponse], max_bytes: int) -> None:
        """Note the response to a fetch of ``max_bytes``."""
        response = self.response = pooled.response
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
        for result in self.results.values():
            if isinstance(result, Failure):
                if (
                    result.action is not FailureAction.RAISE_UNTIL_SEEK
                ):  # a reset may follow, and the same again
                    return False
            elif not isinstance(result, CompletedFetch) or result.size:
                return False
        return True
