"""The number of bytes that a fetch requests, for one partition and in all.

Each fetch costs the consumer some time, whatever its size. Therefore a partition with a backlog is
fetched in larger pieces while the broker responds fast. The caller gets no record before the last
byte of a response. Therefore a slow line gets smaller responses.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from kohort.config import FetchConfig
from kohort.types import TopicPartition

FIRST_BYTES = 1 << 20
"""Bytes of one partition at first, and from a broker that takes long."""
SHARED_BYTES = 16 << 20
"""Bytes that all partitions of a consumer share in larger fetches; also of a fast response."""
RESPONSE_BYTES = 4 << 20
"""Bytes of a response from a near broker: larger ones leave the caches of the processor."""
FIRST_RESPONSE_BYTES = 8 << 20
"""Bytes of a response from a broker whose speed is not known yet."""
NEAR_SECONDS = 0.04
"""Brokers on the same network take 10 to 25 ms for ``RESPONSE_BYTES`` over TLS."""
FAST_SECONDS = 0.1
SLOW_SECONDS = 0.5
START_BYTES = 512 << 10
"""Bytes of the first response, before the rate of the line is known."""
LINE_SECONDS = 2.0
"""Longest time for the bytes of one response, by the measured rate of the line."""
LEAST_BYTES = 128 << 10
"""Bytes of a response over the slowest line. Its rate must remain measurable."""
GROWTH = 4
"""Factor by which a response may exceed the one before. A rate may be measured too high."""


DEFAULTS = FetchConfig()


class FetchSizes:
    """Bytes of one partition and of a response, for each broker. A given option is their limit.

    A broker is fast after a large response within ``FAST_SECONDS``, until one takes
    ``SLOW_SECONDS``. Requests to a fast broker ask for up to ``max_partition_fetch_bytes`` of a
    partition. The caller waits for a whole response, so requests to a slow broker ask for
    ``FIRST_BYTES``.

    A broker is near after a large response within ``NEAR_SECONDS`` (for each ``RESPONSE_BYTES`` of
    it), until one takes ``SLOW_SECONDS``. Small responses cost no time there. The faster a broker
    is, the smaller its responses are. They use less memory and arrive before the caller needs
    them.

    All of that is limited to what the line delivers in ``LINE_SECONDS``. The first response is
    small. Each full response raises the limit, up to the measured rate.
    """

    def __init__(self, config: FetchConfig) -> None:
        self._max_partition_bytes = config.max_partition_fetch_bytes
        self._is_adaptive = self._max_partition_bytes == DEFAULTS.max_partition_fetch_bytes
        self._first = FIRST_BYTES if self._is_adaptive else self._max_partition_bytes
        self._response = self._near_response = config.fetch_max_bytes
        self._first_response = self._fast_response = self._response
        if self._response == DEFAULTS.fetch_max_bytes:
            self._near_response = min(
                self._response, max(RESPONSE_BYTES, self._max_partition_bytes)
            )
            self._first_response = min(
                self._response, max(FIRST_RESPONSE_BYTES, self._max_partition_bytes)
            )
            self._fast_response = min(self._response, max(SHARED_BYTES, self._max_partition_bytes))
        self._known: set[int] = set()
        self._fast: set[int] = set()
        self._near: set[int] = set()
        self._line_bytes: dict[int, int] = {}
        self._large_batches: dict[TopicPartition, int] = {}
        self.partitions = 1
        """Number of partitions that share ``SHARED_BYTES``."""

    @property
    def read_ahead(self) -> int:
        """Bytes to buffer for the caller before a partition is fetched a second time."""
        return max(map(self.response_bytes, self._known), default=self._first_response)

    def partition_bytes(self, node: int) -> int:
        """Return the usual bytes of one partition to request from a broker."""
        if node not in self._fast or not self._is_adaptive:
            return self._first
        return max(
            self._first, min(self._max_partition_bytes, SHARED_BYTES // max(self.partitions, 1))
        )

    def bytes_of(self, tp: TopicPartition, node: int) -> int:
        """Return the bytes of a partition to request from a broker."""
        return max(self._large_batches.get(tp, 0), self.partition_bytes(node))

    def note_large_batch(self, tp: TopicPartition, size: int) -> None:
        """Request ``size`` bytes of a partition whose next batch exceeds the usual size."""
        self._large_batches[tp] = size

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        self.partitions = len(partitions)
        for tp in [tp for tp in self._large_batches if tp not in partitions]:
            del self._large_batches[tp]

    def response_bytes(self, node: int) -> int:
        """Return the bytes of all partitions to request. One larger batch is still returned."""
        return min(self._broker_bytes(node), self._line_bytes.get(node, START_BYTES))

    def _broker_bytes(self, node: int) -> int:
        if node not in self._known:
            return self._first_response
        if node in self._near:
            return self._near_response
        return self._fast_response if node in self._fast else self._response

    def note_response(
        self, node: int, size: int, total: int, seconds: float, rate: float = math.inf
    ) -> None:
        """Note a response of ``total`` bytes, ``size`` of one partition, and how long it took.

        ``rate`` is that of the line in bytes per second, as measured by large responses.
        """
        limit, most = self._line_bytes.get(node, START_BYTES), self._response
        if rate < most:
            most = max(LEAST_BYTES, int(LINE_SECONDS * rate))
        if 2 * total >= self.response_bytes(node):
            limit = GROWTH * max(limit, total)
        self._line_bytes[node] = min(limit, most)
        if 2 * size < min(self._first, FIRST_BYTES):
            return  # the broker may have waited for records
        self._known.add(node)
        if seconds < FAST_SECONDS:
            self._fast.add(node)
        if seconds < NEAR_SECONDS * max(1.0, total / RESPONSE_BYTES):
            self._near.add(node)
        elif seconds > SLOW_SECONDS:
            self._near.discard(node)
            self._fast.discard(node)
