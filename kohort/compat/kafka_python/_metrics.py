"""Metrics under kafka-python's groups and names."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kohort.compat._peer import peer_name

Figures = dict[str, dict[str, float]]

_COORDINATOR = {
    "assigned-partitions": "assigned-partitions",
    "commit-latency-avg": "commit-latency-avg",
    "commit-latency-max": "commit-latency-max",
    "last-heartbeat-seconds-ago": "last-heartbeat-seconds-ago",
    # kohort times a rebalance as a whole.
    "join-time-avg": "rebalance-latency-avg",
    "join-time-max": "rebalance-latency-max",
}
_COORDINATOR_RATES = {
    "commit-rate": "commit-total",
    "heartbeat-rate": "heartbeat-total",
    "join-rate": "rebalance-total",
    "sync-rate": "rebalance-total",
}
_COORDINATOR_UNKNOWN = ("heartbeat-response-time-max", "sync-time-avg", "sync-time-max")
_FETCHER = {
    "fetch-latency-avg": "fetch-latency-avg",
    "fetch-latency-max": "fetch-latency-max",
    "records-lag-max": "records-lag-max",
}
_FETCHER_RATES = {
    "bytes-consumed-rate": "bytes-consumed-total",
    "fetch-rate": "fetch-total",
    "records-consumed-rate": "records-consumed-total",
}
_FETCHER_AVERAGES = {
    "fetch-size-avg": "bytes-consumed-total",
    "records-per-request-avg": "records-consumed-total",
}
_NETWORK = (
    "connection-close-rate",
    "connection-count",
    "connection-creation-rate",
    "incoming-byte-rate",
    "network-io-rate",
    "outgoing-byte-rate",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "response-rate",
    "throttle-time-avg",
    "throttle-time-max",
)
"""Figures that kohort does not count. They are 0.0."""


class MetricName(NamedTuple):
    """Name of a metric in ``metrics(raw=True)``, without kafka-python installed."""

    name: str
    group: str


class Metric(NamedTuple):
    """Metric in ``metrics(raw=True)``, without kafka-python installed."""

    metric_name: MetricName
    number: float

    def value(self) -> float:
        """Return the figure."""
        return self.number


class Metrics:
    """Figures of one consumer; rates are computed over the window of the options."""

    def __init__(self, config: Mapping[str, Any], read: Callable[[], Figures | None]) -> None:
        self._prefix: str = config["metric_group_prefix"]
        self._window = config["metrics_num_samples"] * config["metrics_sample_window_ms"] / 1000
        self._read = read
        # The samples of the window, oldest first: time and totals. None counted at the start.
        self._samples: deque[tuple[float, dict[str, float]]] = deque([(time.monotonic(), {})])

    def collect(self) -> Figures:
        """Return ``{group: {name: figure}}``."""
        native = self._read() or {}
        coordinator = native.get("consumer-coordinator-metrics", {})
        fetcher = native.get("consumer-fetch-manager-metrics", {})
        rates = self._rates({**coordinator, **fetcher})
        fetches = fetcher.get("fetch-total", 0.0)
        found: Figures = {
            "consumer-coordinator-metrics": {
                **{name: coordinator.get(source, 0.0) for name, source in _COORDINATOR.items()},
                **{name: rates.get(source, 0.0) for name, source in _COORDINATOR_RATES.items()},
                **dict.fromkeys(_COORDINATOR_UNKNOWN, 0.0),
            },
            "consumer-fetch-manager-metrics": {
                **{name: fetcher.get(source, 0.0) for name, source in _FETCHER.items()},
                **{name: rates.get(source, 0.0) for name, source in _FETCHER_RATES.items()},
                **{
                    name: fetcher.get(source, 0.0) / max(1.0, fetches)
                    for name, source in _FETCHER_AVERAGES.items()
                },
                "fetch-size-max": 0.0,
            },
            "consumer-metrics": dict.fromkeys(_NETWORK, 0.0),
        }
        for group, figures in native.items():
            if group.startswith("consumer-fetch-manager-metrics."):
                found[group] = dict(figures)
        found = {self._prefix + group.removeprefix("consumer"): found[group] for group in found}
        count = 1 + sum(map(len, found.values()))
        return {**found, "kafka-metrics-count": {"count": float(count)}}

    def collect_raw(self) -> dict[Any, Any]:
        """Return ``{MetricName: KafkaMetric}``, of kafka-python's classes if it is installed."""
        name_class = peer_name("kafka.metrics", "MetricName")
        metric_class = peer_name("kafka.metrics", "KafkaMetric")
        measurable = peer_name("kafka.metrics", "AnonMeasurable")
        found: dict[Any, Any] = {}
        for group, figures in self.collect().items():
            for name, figure in figures.items():
                if metric_class is None:
                    key = MetricName(name, group)
                    found[key] = Metric(key, figure)
                else:
                    key = name_class(name, group)
                    measure = measurable(lambda _config, _now, figure=figure: figure)
                    found[key] = metric_class(key, measure, None)
        return found

    def _rates(self, totals: dict[str, float]) -> dict[str, float]:
        """Return the growth of each total per second, over the window."""
        now, samples = time.monotonic(), self._samples
        while len(samples) > 1 and samples[1][0] <= now - self._window:
            samples.popleft()
        since, before = samples[0]
        seconds = max(now - since, 1e-3)
        samples.append((now, totals))
        return {
            name: max(0.0, total - before.get(name, 0.0)) / seconds
            for name, total in totals.items()
            if name.endswith("-total")
        }
