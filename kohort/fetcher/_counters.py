"""What the fetcher counts, under the names of the Java client's metrics."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.fetcher._buffer import FetchBuffer


@dataclass(slots=True)
class FetchCounters:
    """Written by the core alone; read from anywhere."""

    fetches: int = 0
    fetch_errors: int = 0
    partition_errors: int = 0
    latency_total: float = 0.0
    latency_max: float = 0.0
    throttle_max: float = 0.0

    def answered(self, latency: float) -> None:
        """A fetch was answered after so many seconds."""
        self.fetches += 1
        self.latency_total += latency
        self.latency_max = max(self.latency_max, latency)

    def as_metrics(self, fetched: FetchBuffer) -> dict[str, float]:
        """All figures; times in milliseconds."""
        buffer, policy = fetched.counters, fetched.policy.counters
        return {
            "fetch-total": self.fetches,
            "fetch-error-total": self.fetch_errors,
            "fetch-latency-avg": 1000 * self.latency_total / self.fetches if self.fetches else 0.0,
            "fetch-latency-max": 1000 * self.latency_max,
            "fetch-throttle-time-max": 1000 * self.throttle_max,
            "partition-error-total": self.partition_errors,
            "bytes-consumed-total": buffer.bytes_appended,
            "bytes-buffered": fetched.bytes_held(),
            "bytes-held": fetched.memory.held,
            "bytes-evicted-total": buffer.bytes_evicted,
            "records-consumed-total": buffer.records_delivered,
            "fetches-dropped-total": buffer.dropped_stale,
            "errors-raised-total": buffer.errors_raised,
            "records-skipped-total": policy.records_skipped,
            "batches-skipped-total": policy.batches_skipped,
            "bytes-skipped-total": policy.bytes_skipped,
            "pauses-on-error-total": policy.pauses,
        }
