"""Spans around the handlers of ``process()``, and their durations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kohort.config import VERSION
from kohort.health._answers import AnyConsumer
from kohort.otel._attributes import (
    BUCKETS,
    Attributes,
    context_of,
    links_to,
    of_consumer,
    of_record,
    require_package,
)
from kohort.records import ConsumerRecord
from kohort.types import LazyModule

if TYPE_CHECKING:
    from opentelemetry import metrics, trace
else:
    metrics, trace = (LazyModule(f"opentelemetry.{name}") for name in ("metrics", "trace"))

H = TypeVar("H", bound=Callable[..., Any])


def traced(
    consumer: AnyConsumer,
    handler: H,
    *,
    parent: bool = False,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> H:
    """Return a handler for ``process()`` that has a span around each call.

    ``await process(consumer, traced(consumer, charge))``

    The name of the span is ``process`` and the topic. It has a link to the span that its record
    came from, by the headers of the record. With ``parent`` it is a child of that span. A batch has
    a link to each record. ``messaging.process.duration`` counts the same calls, and an error is in
    ``error.type`` of both. A retry is another call.

    Headers that are malformed, and those of a batch of columns, give no link.
    """
    require_package()
    calls = _Calls(consumer, tracer_provider, meter_provider, is_child=parent)
    if consumer._driver.asynchronous:

        @wraps(handler)
        async def handle(given: Any, *more: Any) -> Any:
            with calls.span(given):
                return await handler(given, *more)

        return cast("H", handle)

    @wraps(handler)
    def handle_in_thread(given: Any, *more: Any) -> Any:
        with calls.span(given):
            return handler(given, *more)

    return cast("H", handle_in_thread)


class _Calls:
    """The spans and durations of a handler."""

    def __init__(
        self,
        consumer: AnyConsumer,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        *,
        is_child: bool,
    ) -> None:
        self._client = of_consumer(consumer, "process")
        self._is_child = is_child
        self._tracer = trace.get_tracer("kohort", VERSION, tracer_provider)
        self._durations = metrics.get_meter("kohort", VERSION, meter_provider).create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    @contextmanager
    def span(self, given: Any) -> Iterator[None]:
        """Put a span around the processing of a record, or of a batch."""
        is_single = isinstance(given, ConsumerRecord)
        records = [given] if is_single else given if isinstance(given, list) else []
        first = given if is_single or not records else records[0]
        where: Attributes = {
            **self._client,
            "messaging.destination.name": first.topic,
            "messaging.destination.partition.id": str(first.partition),
        }
        details: Attributes = {"messaging.operation.type": "process"}
        if is_single:
            details |= of_record(given)
        else:
            details["messaging.batch.message_count"] = len(given)
        contexts = [found for each in records if (found := context_of(each)) is not None]
        begun_at = time.perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"process {first.topic}",
                contexts[0] if self._is_child and is_single and contexts else None,
                trace.SpanKind.CONSUMER,
                {**where, **details},
                links_to(contexts),
            ) as span:
                try:
                    yield
                except BaseException as error:
                    where["error.type"] = type(error).__qualname__
                    span.set_attribute("error.type", where["error.type"])
                    raise
        finally:
            self._durations.record(time.perf_counter() - begun_at, where)
