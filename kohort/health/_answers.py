"""The answers to the three paths, for the server and for the ASGI app."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kohort import (
    AsyncKafkaConsumer,
    AsyncShareConsumer,
    Health,
    KafkaConsumer,
    MetricSample,
    ShareConsumer,
)

AnyConsumer = (
    AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any] | AsyncShareConsumer | ShareConsumer
)

PATHS = ("/live", "/ready", "/metrics")
METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the text format of Prometheus."""


@dataclass(frozen=True)
class Answer:
    """A response of HTTP."""

    status: int
    kind: str
    """The content type."""
    body: bytes

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Return the headers. No proxy may keep the answer."""
        return [
            ("content-type", self.kind),
            ("content-length", str(len(self.body))),
            ("cache-control", "no-store"),
        ]


def of_health(path: str, health: Health) -> Answer:
    """Return the answer of ``/live`` or ``/ready``: 200 or 503, and the health as JSON."""
    is_good = health.live if path == "/live" else health.ready
    return Answer(
        200 if is_good else 503, "application/json", json.dumps(health.as_dict()).encode()
    )


def of_metrics(samples: list[MetricSample]) -> Answer:
    """Return the answer of ``/metrics``, or 404 with ``metrics_enabled=False``."""
    if not samples:
        return not_found()
    return Answer(200, METRICS_KIND, exposition(samples).encode())


def not_found() -> Answer:
    """Return the answer for any other path."""
    return Answer(404, "text/plain; charset=utf-8", b"/live, /ready and /metrics are served here\n")


def unavailable() -> Answer:
    """Return the answer for figures that cannot be read now."""
    return Answer(503, "text/plain; charset=utf-8", b"the event loop of the consumer is blocked\n")


def answer(path: str, consumer: AnyConsumer) -> Answer:
    """Return the answer for a path. It may be called wherever ``health()`` may be."""
    if path in ("/live", "/ready"):
        return of_health(path, consumer.health())
    return of_metrics(consumer.metric_samples()) if path == "/metrics" else not_found()


class Series(NamedTuple):
    """A figure under the name and in the unit of Prometheus."""

    name: str
    is_counter: bool
    labels: dict[str, str]
    value: float
    figure: str
    """Name in ``metrics()``."""


def series(samples: Iterable[MetricSample]) -> Iterator[Series]:
    """Yield figures as series of Prometheus, with the prefix ``kohort_`` and times in seconds.

    A time "seconds ago" that is negative stands for an event that has not happened yet. It is left
    out.
    """
    for name, labels, value in samples:
        metric, scale = _metric_of(name)
        if value >= 0 or not name.endswith(_AGO):
            yield Series(metric, metric.endswith("_total"), labels, value * scale, name)


@cache  # a scrape has the same name for each partition
def _metric_of(name: str) -> tuple[str, float]:
    """Return the name of a figure in Prometheus, and the factor of its unit."""
    if name.endswith(_AGO):
        return f"kohort_{_under(name.removesuffix(_AGO))}_age_seconds", 1.0
    if name in _IN_SECONDS:
        return f"kohort_{_under(_IN_SECONDS[name])}_seconds", 1.0
    if "latency" in name or "time" in name or name == "fetch-interval":
        return f"kohort_{_under(name)}_seconds", 0.001
    return f"kohort_{_under(name)}", 1.0


_AGO = "-seconds-ago"
_IN_SECONDS = {"lag-seconds": "lag", "lag-seconds-max": "lag-max"}


def _under(name: str) -> str:
    return name.replace("-", "_")


def exposition(samples: Iterable[MetricSample]) -> str:
    """Return figures in the text format of Prometheus."""
    lines: dict[str, list[str]] = {}
    for metric, _, labels, value, _ in series(samples):
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.setdefault(metric, []).append(f"{metric}{{{shown}}} {value:.17g}")
    return "".join(
        f"# TYPE {metric} {'counter' if metric.endswith('_total') else 'gauge'}\n"
        + "".join(f"{line}\n" for line in found)
        for metric, found in lines.items()
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
