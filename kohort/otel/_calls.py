"""Spans of the polls and commits of consumers, and their durations."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kohort.config import VERSION
from kohort.consumer.engine._observed import EndOfCall, Observed
from kohort.health._answers import AnyConsumer
from kohort.otel._attributes import (
    BUCKETS,
    Attributes,
    context_of,
    links_to,
    of_consumer,
    require_package,
)
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    from opentelemetry import metrics, trace
else:
    metrics, trace = (LazyModule(f"opentelemetry.{name}") for name in ("metrics", "trace"))


def instrument(
    *consumers: AnyConsumer,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Put a span around each poll and commit of consumers, from now on.

    A span ``poll`` is a call of ``poll()``, ``poll_arrow()`` or ``poll_batches()`` that returned
    records or raised. It has a link to the span of each record of ``poll()``. A span ``commit`` is
    a commit of the program, of ``process()`` or of automatic commits. The name of a topic follows
    if the call is about one topic. ``messaging.client.operation.duration`` counts the same calls,
    and an error is in ``error.type`` of both.

    The spans of share consumers are the same. Their commits are calls that send acknowledgements.
    Iteration has no spans of polls, because it takes records ahead. Call it once for a consumer.
    """
    require_package()
    tracer = trace.get_tracer("kohort", VERSION, tracer_provider)
    durations = metrics.get_meter("kohort", VERSION, meter_provider).create_histogram(
        "messaging.client.operation.duration",
        unit="s",
        description="Duration of messaging operation initiated by a producer or consumer client.",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )
    for consumer in consumers:
        polls = _Operations(of_consumer(consumer, "poll"), "receive", tracer, durations)
        commits = _Operations(of_consumer(consumer, "commit"), "settle", tracer, durations)
        consumer._driver.observe(polls.begin, commits.begin)


class _Operations:
    """The spans and durations of the polls or the commits of a consumer."""

    def __init__(
        self,
        attributes: Attributes,
        kind: str,
        tracer: trace.Tracer,
        durations: metrics.Histogram,
    ) -> None:
        self._attributes = attributes
        self._kind = kind
        self._tracer = tracer
        self._durations = durations

    def begin(self) -> EndOfCall:
        """Note the begin of a call, and return the function that notes its end."""
        return partial(self._end, time.time_ns(), time.perf_counter())

    def _end(
        self, begun_ns: int, begun: float, found: Observed | None, error: BaseException | None
    ) -> None:
        """Make the span of a call that found something, or that raised."""
        if found is None and error is None:
            return  # an empty poll
        seconds = time.perf_counter() - begun
        where = self._attributes | _of_partitions(found.partitions if found else ())
        if error is not None:
            where["error.type"] = type(error).__qualname__
        details: Attributes = {"messaging.operation.type": self._kind}
        contexts = []
        if found is not None and found.size is not None:
            details["messaging.batch.message_count"] = found.size
            records = chain.from_iterable(found.records.values())
            contexts = [at for each in records if (at := context_of(each)) is not None]
        names = (where["messaging.operation.name"], where.get("messaging.destination.name", ""))
        span = self._tracer.start_span(
            "{} {}".format(*names).rstrip(),
            None,
            trace.SpanKind.CLIENT,
            where | details,
            links_to(contexts),
            begun_ns,
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.end(begun_ns + round(1e9 * seconds))
        self._durations.record(seconds, where)


def _of_partitions(partitions: Collection[TopicPartition]) -> Attributes:
    """Return the topic, and the partition, if there is only one."""
    topics = {tp.topic for tp in partitions}
    if len(topics) != 1:
        return {}
    found: Attributes = {"messaging.destination.name": topics.pop()}
    if len(partitions) == 1:
        [only] = partitions
        found["messaging.destination.partition.id"] = str(only.partition)
    return found
