"""OpenTelemetry: figures of consumers, and spans around the handlers of ``process()``.

Names are those of the semantic conventions for messaging. They are still in development, and have
no name for lag, so those begin with ``kohort.``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kohort.config import VERSION
from kohort.consumer import AsyncKafkaConsumer
from kohort.health._answers import AnyConsumer
from kohort.health._questions import samples_of
from kohort.logs import get_logger
from kohort.records import ConsumerRecord
from kohort.types import LazyModule

if TYPE_CHECKING:
    from opentelemetry import context, metrics, propagate, trace
else:
    context, metrics, propagate, trace = (
        LazyModule(f"opentelemetry.{name}") for name in ("context", "metrics", "propagate", "trace")
    )

__all__ = ["observe", "traced"]

logger = get_logger("kohort.otel")

H = TypeVar("H", bound=Callable[..., Any])
Attributes = dict[str, str | int | bool]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds in seconds that the conventions advise."""


def observe(*consumers: AnyConsumer, meter_provider: metrics.MeterProvider | None = None) -> None:
    """Let each export of a meter provider read the figures of consumers.

    The instruments are ``messaging.client.consumed.messages``, ``kohort.consumer.lag`` and
    ``kohort.consumer.lag.time``. A figure that is unknown is absent, and so is a partition that was
    revoked. Call it once for a provider, with all consumers.
    """
    _require_package()
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
            attributes = _of_client(labels["client_id"], labels.get("group_id"))
            if operation is not None:
                attributes["messaging.operation.name"] = operation
            if "topic" in labels:
                attributes["messaging.destination.name"] = labels["topic"]
                attributes["messaging.destination.partition.id"] = labels["partition"]
            yield metrics.Observation(value if operation is None else int(value), attributes)


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
    _require_package()
    calls = _Calls(consumer, tracer_provider, meter_provider, is_child=parent)
    if isinstance(consumer, AsyncKafkaConsumer):

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


def _require_package() -> None:
    if find_spec("opentelemetry") is None:
        raise ImportError("kohort.otel needs opentelemetry-api: pip install 'kohort[otel]'")


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
        config = consumer._driver.config
        self._client = _of_client(config.client.client_id, config.group.group_id)
        self._client["messaging.operation.name"] = "process"
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
            details |= _of_record(given)
        else:
            details["messaging.batch.message_count"] = len(given)
        contexts = [found for each in records if (found := _context_of(each)) is not None]
        begun_at = time.perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"process {first.topic}",
                contexts[0] if self._is_child and is_single and contexts else None,
                trace.SpanKind.CONSUMER,
                {**where, **details},
                [trace.Link(trace.get_current_span(each).get_span_context()) for each in contexts],
            ) as span:
                try:
                    yield
                except BaseException as error:
                    where["error.type"] = type(error).__qualname__
                    span.set_attribute("error.type", where["error.type"])
                    raise
        finally:
            self._durations.record(time.perf_counter() - begun_at, where)


def _of_client(client_id: str, group_id: str | None) -> Attributes:
    found: Attributes = {"messaging.system": "kafka", "messaging.client.id": client_id}
    if group_id is not None:
        found["messaging.consumer.group.name"] = group_id
    return found


def _of_record(record: ConsumerRecord[Any, Any]) -> Attributes:
    found: Attributes = {"messaging.kafka.offset": record.offset}
    key = _text(record.key)
    if key is not None:
        found["messaging.kafka.message.key"] = key
    if record.value is None:
        found["messaging.kafka.message.tombstone"] = True
    return found


def _text(key: object) -> str | None:
    """Return a key as text, or None if it is none."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return str(key) if isinstance(key, str | int) else None


class _Headers:
    """The headers of a record, as a propagator reads them."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        return [carrier[key]] if key in carrier else None

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


def _context_of(record: ConsumerRecord[Any, Any]) -> context.Context | None:
    """Return the context of the span that a record came from, or None if it names none."""
    headers = {
        name: value.decode("ascii", "replace")
        for name, value in record.headers
        if value is not None
    }
    try:
        found = propagate.extract(headers, context.Context(), cast("Any", _Headers()))
    except Exception:  # a propagator of the program may raise
        logger.debug("the headers of %r name no span", record, exc_info=True)
        return None
    return found if trace.get_current_span(found).get_span_context().is_valid else None
