"""OpenTelemetry: names of the conventions, links, errors, and figures at each export."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.processing import Batch, process
from kohort.testing import Cluster, MemoryCluster, ProducerRecord
from tests.support.virtual import run_virtual

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.trace import SpanKind, StatusCode

from kohort import otel

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


class Telemetry:
    """Providers that keep what they get in memory."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def metrics(self) -> dict[str, list[Any]]:
        """Return the data points of an export by instrument."""
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def record(**given: Any) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("orders", 3, offset=7, **given)


def call(telemetry: Telemetry, given: Any, **options: Any) -> Any:
    """Call a traced handler that does nothing, and return its span."""
    consumer = KafkaConsumer(group_id="billing", client_id="worker-1")
    handler: Any = otel.traced(
        consumer,
        lambda _: None,
        tracer_provider=telemetry.tracers,
        meter_provider=telemetry.meters,
        **options,
    )
    handler(given)
    [span] = telemetry.spans.get_finished_spans()
    return span


def test_span_of_a_record_has_the_attributes_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import messaging_attributes

    known = {value for value in vars(messaging_attributes).values() if isinstance(value, str)}
    span = call(telemetry := Telemetry(), record(key=b"alice", value=None))
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "worker-1",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 7,
        "messaging.kafka.message.key": "alice",
        "messaging.kafka.message.tombstone": True,
    }
    assert set(span.attributes) <= known
    [point] = telemetry.metrics()["messaging.process.duration"]
    assert point.count == 1
    assert tuple(point.explicit_bounds) == otel.BUCKETS
    assert "messaging.kafka.offset" not in point.attributes


def test_link_or_parent_is_the_span_of_the_producer() -> None:
    given = record(value=b"x", headers=(("traceparent", PARENT),))
    span = call(Telemetry(), given)
    assert [link.context.trace_id for link in span.links] == [TRACE_ID]
    assert span.parent is None
    child = call(Telemetry(), given, parent=True)
    assert child.context.trace_id == child.parent.trace_id == TRACE_ID


@pytest.mark.parametrize("value", [b"", b"\xff\x00", b"00-zz-1-01", b"00-" + b"0" * 32, None])
@pytest.mark.cases(5)
def test_malformed_header_gives_no_link(value: bytes | None) -> None:
    span = call(Telemetry(), record(value=b"x", key=b"\xff", headers=(("traceparent", value),)))
    assert not span.links
    assert "messaging.kafka.message.key" not in span.attributes


def test_error_of_a_handler_is_in_the_span_and_in_the_duration() -> None:
    telemetry = Telemetry()

    def fail(_: object) -> None:
        raise LookupError("no such customer")

    handler = otel.traced(
        KafkaConsumer(), fail, tracer_provider=telemetry.tracers, meter_provider=telemetry.meters
    )
    with pytest.raises(LookupError):
        handler(record(value=b"x"))
    span: Any
    [span] = telemetry.spans.get_finished_spans()
    assert span.attributes["error.type"] == "LookupError"
    assert span.status.status_code is StatusCode.ERROR
    [point] = telemetry.metrics()["messaging.process.duration"]
    assert point.attributes["error.type"] == "LookupError"


def test_async_handler_of_a_batch_has_one_span_with_all_links() -> None:
    from tests.consumer.virtual import MemoryConsumer

    telemetry = Telemetry()

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            cluster.produce("orders", [ProducerRecord(b"x", headers=[("traceparent", PARENT)])] * 3)
            consumer = MemoryConsumer(cluster, "orders", group_id="billing")

            async def insert(rows: list[Any]) -> None:
                consumer.wakeup()

            async with consumer:
                handler = otel.traced(consumer, insert, tracer_provider=telemetry.tracers)
                await process(
                    consumer, handler, batch=Batch(rows=3, seconds=1), handle_signals=False
                )

    run_virtual(main)
    span: Any
    [span] = telemetry.spans.get_finished_spans()
    assert span.attributes["messaging.batch.message_count"] == len(span.links) == 3


def test_export_has_consumed_messages_and_lag_of_assigned_partitions() -> None:
    from opentelemetry.semconv._incubating.metrics import messaging_metrics

    telemetry = Telemetry()
    with Cluster(topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["a", "b", "c"], partition=0)
        with KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, client_id="worker-1"
        ) as consumer:
            otel.observe(consumer, meter_provider=telemetry.meters)
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek_to_beginning()
            while not consumer.poll(1000, max_records=1):
                pass
            found = telemetry.metrics()
            consumer.assign([])
            later = telemetry.metrics()
    name = messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES
    assert [point.value for point in found[name]] == [1]
    [lag] = found["kohort.consumer.lag"]
    assert lag.value == 2
    assert dict(lag.attributes) == {
        "messaging.system": "kafka",
        "messaging.client.id": "worker-1",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
    }
    assert [point.value >= 0 for point in found["kohort.consumer.lag.time"]] == [True]
    assert "kohort.consumer.lag" not in later
    assert otel.observe.__doc__ and messaging_metrics.MESSAGING_PROCESS_DURATION in str(
        otel.traced.__doc__
    )
