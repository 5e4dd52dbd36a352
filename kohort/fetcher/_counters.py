"""Counters of the fetcher, under the names of the Java client's metrics."""

from __future__ import annotations

from kohort.fetcher._buffer import FetchBuffer


class FetchCounters:
    """Counters that only the background task writes. Any thread may read them."""

    __slots__ = (
        "fetch_errors",
        "fetches",
        "latency_max",
        "latency_total",
        "partition_errors",
        "throttle_max",
    )

    def __init__(self) -> None:
        self.fetches = 0
        self.fetch_errors = 0
        self.partition_errors = 0
        self.latency_total = 0.0
        self.latency_max = 0.0
        self.throttle_max = 0.0

    def note_response(self, latency: float) -> None:
        """Count a response and its latency in seconds."""
        self.fetches += 1
        self.latency_total += latency
        self.latency_max = max(self.latency_max, latency)

    def as_metrics(self, buffer: FetchBuffer) -> dict[str, float]:
        """Return all metrics, with times in milliseconds."""
        queues, policy = buffer.queues, buffer.policy.counters
        counters, buffered = queues.counters, queues.bytes_buffered()
        return {
            "fetch-total": self.fetches,
            "fetch-error-total": self.fetch_errors,
            "fetch-latency-avg": 1000 * self.latency_total / self.fetches if self.fetches else 0.0,
            "fetch-latency-max": 1000 * self.latency_max,
            "fetch-throttle-time-max": 1000 * self.throttle_max,
            "partition-error-total": self.partition_errors,
            "bytes-consumed-total": counters.bytes_appended,
            "bytes-buffered": buffered,
            "bytes-held": max(queues.limits.memory.pooled_bytes, buffered),
            "bytes-evicted-total": counters.bytes_evicted,
            "records-consumed-total": counters.records_delivered,
            "fetches-dropped-total": counters.dropped_stale,
            "errors-raised-total": counters.errors_raised,
            "records-skipped-total": policy.records_skipped,
            "batches-skipped-total": policy.batches_skipped,
            "bytes-skipped-total": policy.bytes_skipped,
            "pauses-on-error-total": policy.pauses,
        }
