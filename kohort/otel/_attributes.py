"""Attributes of spans and figures by the conventions, and the spans that records came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from kohort.health._answers import AnyConsumer
from kohort.logs import get_logger
from kohort.records import ConsumerRecord
from kohort.types import LazyModule

if TYPE_CHECKING:
    from opentelemetry import context, propagate, trace
else:
    context, propagate, trace = (
        LazyModule(f"opentelemetry.{name}") for name in ("context", "propagate", "trace")
    )

logger = get_logger("kohort.otel")

Attributes = dict[str, str | int | bool]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds in seconds that the conventions advise."""


def require_package() -> None:
    if find_spec("opentelemetry") is None:
        raise ImportError("kohort.otel needs opentelemetry-api: pip install 'kohort[otel]'")


def of_client(client_id: str, group_id: str | None) -> Attributes:
    found: Attributes = {"messaging.system": "kafka", "messaging.client.id": client_id}
    if group_id is not None:
        found["messaging.consumer.group.name"] = group_id
    return found


def of_record(record: ConsumerRecord[Any, Any]) -> Attributes:
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


def context_of(record: ConsumerRecord[Any, Any]) -> context.Context | None:
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


def links_to(contexts: Iterable[context.Context]) -> list[trace.Link]:
    """Return a link to the span of each context."""
    return [trace.Link(trace.get_current_span(each).get_span_context()) for each in contexts]


def of_consumer(consumer: AnyConsumer, operation: str) -> Attributes:
    """Return the attributes of an operation of a consumer."""
    driver = consumer._driver
    found = of_client(driver.config.client.client_id, driver.group_id)
    found["messaging.operation.name"] = operation
    return found
