"""The number of connections over which the backlog of a distant broker is fetched at once.

A connection has one fetch in flight, so it delivers nothing for a round trip after each response.
Far from a broker that is most of the time. Nor does TCP deliver more than one send buffer of the
broker in a round trip over one connection. That is 100 KiB with the defaults of Apache Kafka, so
1 MB/s at 150 ms. Larger fetches help against the first limit only, several connections against
both.

A partition is *behind* after a response that was cut before the end of its log. The records that
follow exist, so a fetch of them waits for nothing but the line. While a distant broker has
partitions that are behind, these are spread over several connections:

* ParallelPolicy chooses the number. It gets figures of each response, and has no clock and no I/O.
* NodeConnections has the connections: the main one, and the parallel ones beside it. A parallel
  connection has no fetch session, because each of its fetches names other partitions. A broker
  keeps a limited number of sessions.
* FetchPlanner gives each free connection its share of the partitions that are behind and not in
  flight, those that came longest ago first. An equal share of all that are behind is the most. The
  main and the extra connection fetch all others.
* FetchSizes divides the bytes in flight by the number of connections.

The number begins with what fills the round trip after the first response by more such responses.
Then it grows fourfold while that raises the rate of the broker by more than a tenth. Otherwise the
connections before are enough for a minute. It does not grow by one, because one among many cannot
raise the rate by a tenth. The rate counts the bytes of all connections, so a slow caller does not
raise it.

All of them open at once, which takes a round trip, and their first responses take another one.
Until then the main connection fetches half of the partitions that are behind, with half of the
bytes in flight. A connection without a fetch for some seconds is closed, so a broker whose
partitions are no longer behind keeps none.

A change must keep these invariants:

1. A partition is in flight over one connection to its broker at most. After a seek the older fetch
   may still be in flight. Its result is dropped, because its epoch has passed.
2. A connection has at most one fetch in flight, as the fetcher's first invariant says.
3. A throttle time of a broker delays the next fetch of all its connections. So do a failure of its
   main connection, and a partition that must be fetched alone.
4. A parallel connection that fails delays no other connection. The others fetch its partitions
   next, and the number falls for a minute to those that are open.
5. Fetches over all connections together reserve bytes within ``buffer_memory``.
6. A near broker has no parallel connections. Nor has one with less than two partitions that are
   behind.
7. After a revocation, a pause, a seek or a new leader, no later fetch has the former request of the
   partition. Plans contain current candidates only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kohort.types import NamedTuple

DISTANT_SECONDS = 0.005
"""Round trip from which a broker is distant. A network of one site takes less."""
MOST_CONNECTIONS = 32
STEP = 4
"""Factor by which their number grows."""
GAIN = 1.1
"""Factor by which more connections must raise the rate."""
RETRY_SECONDS = 60.0
"""Time until more connections are tried again."""
IDLE_SECONDS = 10.0
"""Time since the start of its latest fetch after which a parallel connection is closed."""


class Delivery(NamedTuple):
    """The figures of one response."""

    sent_at: float
    at: float
    size: int
    round_trip: float
    """Least round trip to the broker in seconds, or infinity if it is unknown."""
    bytes_per_second: float
    """Rate of the line between the first and last byte of a large response."""

    @property
    def least_rate(self) -> float:
        """Rate by the whole time without a round trip.

        It includes the time of the broker, and the time until a busy receiver received. So it is
        not too high, as that of the line may be.
        """
        seconds = self.at - self.sent_at - self.round_trip
        return min(self.bytes_per_second, self.size / seconds if seconds > 0 else 1e12)


class ParallelFetches(NamedTuple):
    """The connections for fetches from a broker, as explain() shows them."""

    connections: int
    bytes_per_second: float
    """The rate of all of them, or 0 before it was measured."""


def is_distant(round_trip: float) -> bool:
    """True if a broker with this round trip is distant."""
    return DISTANT_SECONDS <= round_trip < math.inf


def needed_of(latest: Iterable[float], now: float) -> int:
    """Return the number of connections that are still needed, in the order in which they are used.

    ``latest`` has the start of the latest fetch over each of them, or infinity during a fetch.
    """
    needed = 0
    for number, at in enumerate(latest, 1):
        if at + IDLE_SECONDS > now:
            needed = number
    return needed


class ParallelPolicy:
    """The number of connections to one broker for partitions that are behind.

    It is a function of the figures that it gets.
    """

    __slots__ = (
        "_before",
        "_bytes",
        "_fewer",
        "_responses",
        "_retry_at",
        "_since",
        "connections",
        "rate",
    )

    def __init__(self) -> None:
        self.connections: int = 1
        """Most connections, the main one included."""
        self.rate: float = 0.0
        """Bytes per second of all connections together, as measured last. 0 before that."""
        self._before: float | None = None
        """The rate with :attr:`_fewer` connections, or None if nothing is compared."""
        self._fewer = 1
        self._retry_at = -math.inf
        self._restart(0.0)

    def note_response(self, delivery: Delivery, behind: int) -> None:
        """Note the figures of a response, and decide. ``behind`` partitions are behind after it."""
        if not is_distant(delivery.round_trip):
            self.reset()
            return
        self._bytes += delivery.size
        if delivery.sent_at < self._since:
            return
        self._responses += 1
        if self.connections == 1:
            self._begin(delivery, behind)
        elif self._responses >= self.connections:
            self._compare(delivery, behind)

    def _begin(self, delivery: Delivery, behind: int) -> None:
        if behind < 2 or delivery.size == 0 or delivery.at < self._retry_at:
            return
        idle_bytes = delivery.round_trip * delivery.least_rate
        wanted = math.ceil(1 + idle_bytes / delivery.size)
        self.connections = max(2, min(wanted, MOST_CONNECTIONS, behind))
        self._before = None
        self._restart(delivery.at)

    def _compare(self, delivery: Delivery, behind: int) -> None:
        """Multiply the number or go back, by the rate since the latest change.

        As many fetches as there are connections were sent and have returned since.
        """
        at, seconds = delivery.at, delivery.at - self._since
        self.rate = self._bytes / seconds if seconds > 0 else self.rate
        before, self._before = self._before, None
        if before is not None and self.rate < GAIN * before:
            self.connections, self._retry_at = self._fewer, at + RETRY_SECONDS
        elif at >= self._retry_at and behind > self.connections < MOST_CONNECTIONS:
            self._before, self._fewer = self.rate, self.connections
            self.connections = min(STEP * self.connections, behind, MOST_CONNECTIONS)
        self._restart(at)

    def note_failure(self, at: float, healthy: int) -> None:
        """Note that a connection failed while ``healthy`` others were open."""
        self.connections = max(1, min(self.connections, healthy))
        self._before, self._retry_at = None, at + RETRY_SECONDS
        self._restart(at)

    def reset(self) -> None:
        """Use the main connection alone, until the partitions are behind again."""
        self.connections, self.rate, self._before = 1, 0.0, None
        self._restart(0.0)

    def _restart(self, at: float) -> None:
        self._responses, self._bytes, self._since = 0, 0, at
