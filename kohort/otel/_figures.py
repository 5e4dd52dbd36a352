"""Figures of consumers, which each export reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kohort.config import VERSION
from kohort.health._answers import AnyConsumer
from kohort.health._questions import samples_of
from kohort.otel._attributes import of_client, require_package
from kohort.types import LazyModule

if TYPE_CHECKING:
    from opentelemetry import metrics
else:
    metrics = LazyModule("opentelemetry.metrics")


def observe(*consumers: AnyConsumer, meter_provider: metrics.MeterProvider | None = None) -> None:
    """Let each export of a meter provider read the figures of consumers.

    The instruments are ``messaging.client.consumed.messages``, ``kohort.consumer.lag`` and
    ``kohort.consumer.lag.time``. A figure that is unknown is absent, and so is a partition that was
    revoked. Call it once for a provider, with all consumers.
    """
    require_package()
    meter = metrics.get_meter("kohort", VERSION, meter_provider)
    meter.create_observable_counter(
        "messaging.client.consumed.messages",
        [partial(_observations, consumers, "records-consumed-total", "poll")],
        unit="{message}",
        description="Number of messages that were delivered to the application.",
    )
    meter.create_observable_gauge(
        "kohort.consumer.lag",
        [partial(_observations, consumers, "records-lag", None)],
        unit="{message}",
        description="Offsets between the position of a partition and the end of its log.",
    )
    meter.create_observable_gauge(
        "kohort.consumer.lag.time",
        [partial(_observations, consumers, "lag-seconds", None)],
        unit="s",
        description="Age of the record at the position of a partition.",
    )


def _observations(
    consumers: Sequence[AnyConsumer], figure: str, operation: str | None, _: metrics.CallbackOptions
) -> Iterable[metrics.Observation]:
    for consumer in consumers:
        for name, labels, value in samples_of(consumer):
            if name != figure:
                continue
            attributes = of_client(labels["client_id"], labels.get("group_id"))
            if operation is not None:
                attributes["messaging.operation.name"] = operation
            if "topic" in labels:
                attributes["messaging.destination.name"] = labels["topic"]
                attributes["messaging.destination.partition.id"] = labels["partition"]
            yield metrics.Observation(value if operation is None else int(value), attributes)
