"""Figures of consumers for Prometheus: a collector for prometheus_client, and text without it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kohort.health._answers import AnyConsumer, series
from kohort.health._answers import exposition as _text
from kohort.health._questions import samples_of
from kohort.types import LazyModule

if TYPE_CHECKING:
    import prometheus_client
else:
    prometheus_client = LazyModule("prometheus_client")

__all__ = ["Collector", "exposition"]


def exposition(*consumers: AnyConsumer) -> str:
    """Return the figures of consumers in the text format of Prometheus, from any thread.

    It needs no other package. Names, units and what is left out are those of :class:`Collector`.
    """
    return _text([sample for each in consumers for sample in samples_of(each)])


class Collector:
    """A collector of prometheus_client with the figures of consumers.

    ``REGISTRY.register(Collector(consumer))``

    Each scrape reads ``metric_samples()``. So a partition that was revoked has no series in the
    next scrape, and a figure that is unknown is absent and never NaN. Names have the prefix
    ``kohort_``, times are in seconds, and totals end in ``_total``. The labels are ``client_id``
    and ``group_id``, and ``topic`` and ``partition`` of a partition.

    A consumer that is closed, or whose event loop does not answer within half a second, has no
    series. One collector takes several consumers, because a registry needs one collector for a
    name.
    """

    def __init__(self, *consumers: AnyConsumer) -> None:
        self._consumers = [weakref.ref(each) for each in consumers]

    def describe(self) -> list[prometheus_client.Metric]:
        """Return no metrics, so that the registration of a collector reads no figures."""
        return []

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield the metrics of a scrape. Prometheus calls it, from any thread."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.samples import Sample

        found: dict[str, prometheus_client.Metric] = {}
        consumers = [consumer for each in self._consumers if (consumer := each()) is not None]
        for each in series(sample for consumer in consumers for sample in samples_of(consumer)):
            if (metric := found.get(each.name)) is None:
                kind = CounterMetricFamily if each.is_counter else GaugeMetricFamily
                metric = found[each.name] = kind(each.name, f"{each.figure} of metrics()")
            metric.samples.append(Sample(each.name, each.labels, each.value, None, None, None))
        yield from found.values()
