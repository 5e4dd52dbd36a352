"""The number of bytes that a fetch requests, for one partition and in all.

Each fetch costs the consumer some time, whatever its size. Therefore a partition with a backlog is
fetched in larger pieces while the broker responds fast. The caller gets no record before the last
byte of a response. Therefore a slow line gets smaller responses.

A distant broker delivers nothing for a round trip after each response. Therefore the bytes in
flight from it are twice what its line delivers in a round trip. All connections to it share them.
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
FLIGHT_FACTOR = 2.0
"""Multiple of what the line delivers in a round trip that is in flight from a distant broker."""
LEAST_FLIGHT = 4 << 20
CONNECTION_BYTES = 1 << 20
"""Least bytes in flight over each of several connections.

It is ten times the send buffer of a broker. So the round trip after each response counts little.
"""


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

    A distant broker has ``FLIGHT_FACTOR`` round trips of bytes in flight instead. They take three
    quarters of ``buffer_memory`` at most, because the caller reads the rest.

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
        self._most_in_flight = 3 * config.buffer_memory // 4
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        """Bytes in flight from each distant broker, and the connections and partitions that share
        them. 0 partitions stands for all."""
        self._line_bytes: dict[int, int] = {}
        self._large_batches: dict[TopicPartition, int] = {}
        self.partitions = 1
        """Number of partitions that share ``SHARED_BYTES``."""

    @property
    def read_ahead(self) -> int:
        """Bytes to buffer for the caller before a partition is fetched a second time."""
        nodes = self._known | self._in_flight.keys()
        return max(map(self._all_bytes, nodes), default=self._first_response)

    def _all_bytes(self, node: int) -> int:
        """Return the bytes to request over all connections to a broker."""
        _, connections, _ = self._in_flight.get(node, (0, 1, 0))
        return connections * self.response_bytes(node)

    def partition_bytes(self, node: int) -> int:
        """Return the usual bytes of one partition to request from a broker."""
        if not self._is_adaptive:
            return self._first
        if (distant := self._in_flight.get(node)) is not None:
            size, connections, behind = distant
            return max(self._first, size // max(connections, behind or self.partitions))
        if node not in self._fast:
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

    def opening_bytes(self, node: int) -> int:
        """Return half of the bytes in flight, for the main connection while the others open."""
        size = self._in_flight.get(node, (0, 0, 0))[0]
        return min(size // 2, self._line_bytes.get(node, START_BYTES))

    def _broker_bytes(self, node: int) -> int:
        if (distant := self._in_flight.get(node)) is not None:
            size, connections, _ = distant
            return min(self._response, size // connections)
        if node not in self._known:
            return self._first_response
        if node in self._near:
            return self._near_response
        return self._fast_response if node in self._fast else self._response

    def note_distance(
        self,
        node: int,
        round_trip: float,
        bytes_per_second: float,
        connections: int,
        *,
        behind: int = 0,
    ) -> None:
        """Keep what a distant broker delivers in flight over its connections together.

        Only the partitions that are ``behind`` share it. If they are few, most connections have no
        fetch, except for the main one, which has a long poll for the others.
        """
        if behind:
            connections = min(connections, behind + 1)
        wanted = FLIGHT_FACTOR * round_trip * min(bytes_per_second, 1e12)
        wanted = max(wanted, LEAST_FLIGHT if connections == 1 else CONNECTION_BYTES * connections)
        # Heartbeats and commits wait behind these bytes, whatever the number of connections.
        most = max(LINE_SECONDS * bytes_per_second, LEAST_BYTES * connections)
        size = int(min(wanted, most, self._most_in_flight))
        self._in_flight[node] = size, connections, behind

    def note_near(self, node: int) -> bool:
        """Note that a broker is near. Return True if it was distant."""
        return self._in_flight.pop(node, None) is not None

    def note_response(
        self,
        node: int,
        size: int,
        total: int,
        seconds: float,
        rate: float = math.inf,
        *,
        proven: float = 0.0,
    ) -> None:
        """Note a response of ``total`` bytes, ``size`` of one partition, and how long it took.

        ``rate`` is that of the line in bytes per second, as measured by large responses. The next
        response may have ``proven`` bytes, whatever this one had.
        """
        limit, most = self._line_bytes.get(node, START_BYTES), self._response
        if rate < most:
            most = max(LEAST_BYTES, int(LINE_SECONDS * rate))
        if 2 * total >= self.response_bytes(node):
            limit = max(GROWTH * max(limit, total), int(proven))
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
