"""OpenTelemetry: names of the conventions, links, errors, and figures at each export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from kohort import AsyncShareConsumer, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.errors import CommitFailedError, WakeupError
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
from kohort.otel._attributes import BUCKETS

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
    assert tuple(point.explicit_bounds) == BUCKETS
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


def calls(spans: InMemorySpanExporter) -> list[tuple[str, Any]]:
    """Return the names and the attributes of finished spans."""
    return [(span.name, dict(span.attributes or {})) for span in spans.get_finished_spans()]


OF_BILLING = {
    "messaging.system": "kafka",
    "messaging.client.id": "worker-1",
    "messaging.consumer.group.name": "billing",
}
OF_ORDERS = {
    "messaging.destination.name": "orders",
    "messaging.destination.partition.id": "0",
}


@pytest.fixture
def polled() -> Iterator[tuple[Cluster, KafkaConsumer[bytes, bytes], Telemetry]]:
    """Yield a cluster, an instrumented consumer with its first records, and its reports."""
    telemetry = Telemetry()
    with Cluster(topics={"orders": 1, "bills": 1}) as cluster:
        headers = [("traceparent", PARENT)]
        cluster.produce("orders", [ProducerRecord(b"x", headers=headers), ProducerRecord(b"y")])
        with KafkaConsumer(
            "orders",
            "bills",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="billing",
            client_id="worker-1",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            otel.instrument(
                consumer, tracer_provider=telemetry.tracers, meter_provider=telemetry.meters
            )
            consumer.poll(timeout_ms=60_000)
            yield cluster, consumer, telemetry


Polled = tuple[Cluster, KafkaConsumer[bytes, bytes], Telemetry]


def test_poll_and_commit_are_spans_with_the_names_of_the_conventions(polled: Polled) -> None:
    from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
    from opentelemetry.semconv._incubating.metrics import messaging_metrics

    _, consumer, telemetry = polled
    consumer.commit()
    poll, commit = calls(telemetry.spans)
    receive, settle = names.MessagingOperationTypeValues.RECEIVE, "settle"
    assert settle == names.MessagingOperationTypeValues.SETTLE.value
    assert poll == (
        "poll orders",
        OF_BILLING
        | OF_ORDERS
        | {
            names.MESSAGING_OPERATION_NAME: "poll",
            names.MESSAGING_OPERATION_TYPE: receive.value,
            names.MESSAGING_BATCH_MESSAGE_COUNT: 2,
        },
    )
    operation = {names.MESSAGING_OPERATION_NAME: "commit", names.MESSAGING_OPERATION_TYPE: settle}
    assert commit == ("commit", OF_BILLING | operation)
    first, second = telemetry.spans.get_finished_spans()
    assert first.kind is second.kind is SpanKind.CLIENT
    assert [link.context.trace_id for link in first.links] == [TRACE_ID]
    points = telemetry.metrics()[messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION]
    assert [
        (dict(point.attributes) | {"messaging.system": "kafka"}, point.count) for point in points
    ] == [
        (OF_BILLING | OF_ORDERS | {"messaging.operation.name": "poll"}, 1),
        (OF_BILLING | {"messaging.operation.name": "commit"}, 1),
    ]
    assert tuple(points[0].explicit_bounds) == BUCKETS
    taken = (first.end_time or 0) - (first.start_time or 0)
    assert points[0].sum == pytest.approx(taken / 1e9, abs=1e-6)


def test_empty_poll_has_no_span(polled: Polled) -> None:
    _, consumer, telemetry = polled
    assert not consumer.poll()
    assert len(calls(telemetry.spans)) == 1
    [point] = telemetry.metrics()["messaging.client.operation.duration"]
    assert point.count == 1


def test_poll_of_columns_has_a_span_with_its_rows(polled: Polled) -> None:
    cluster, consumer, telemetry = polled
    cluster.produce("bills", ["a", "b", "c"])
    while not consumer.poll_batches(timeout_ms=60_000):
        pass
    _, (name, attributes) = calls(telemetry.spans)
    assert name == "poll bills"
    assert attributes["messaging.batch.message_count"] == 3


def test_errors_of_poll_and_commit_are_in_their_spans(polled: Polled) -> None:
    _, consumer, telemetry = polled
    with pytest.raises(CommitFailedError):
        consumer.commit({TopicPartition("elsewhere", 0): 1})
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    _, commit, poll = telemetry.spans.get_finished_spans()
    found = [(each.name, (each.attributes or {})["error.type"]) for each in (commit, poll)]
    assert found == [("commit elsewhere", "CommitFailedError"), ("poll", "WakeupError")]
    assert commit.status.status_code is poll.status.status_code is StatusCode.ERROR
    errors = [
        point.attributes.get("error.type")
        for point in telemetry.metrics()["messaging.client.operation.duration"]
    ]
    assert sorted(filter(None, errors)) == ["CommitFailedError", "WakeupError"]


def test_interrupted_span_of_a_poll_loses_no_record(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, consumer, _ = polled
    cluster.produce("orders", ["later"])
    with monkeypatch.context() as patch:
        patch.setattr("kohort.otel._calls.context_of", Mock(side_effect=[KeyboardInterrupt, None]))
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=60_000)
    [records] = consumer.poll(timeout_ms=60_000).values()
    assert [record.value for record in records] == [b"later"]


def test_async_and_automatic_commits_are_spans() -> None:
    from tests.consumer.virtual import MemoryConsumer

    telemetry = Telemetry()

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            cluster.produce("orders", ["x"])
            consumer = MemoryConsumer(cluster, "orders", group_id="billing")
            otel.instrument(consumer, tracer_provider=telemetry.tracers)
            async with consumer:
                with telemetry.tracers.get_tracer("test").start_as_current_span("cycle"):
                    while not await consumer.poll(1000):
                        pass
                    await consumer.commit()
                cluster.produce("orders", ["y"])
                while not await consumer.poll(1000):
                    pass

    run_virtual(main)
    names = [name for name, _ in calls(telemetry.spans)]
    assert names == ["poll orders", "commit orders", "cycle", "poll orders", "commit orders"]
    poll, commit, cycle, *_ = telemetry.spans.get_finished_spans()
    assert poll.parent == commit.parent == cycle.get_span_context()


def test_polls_and_commits_of_share_consumers_are_spans() -> None:
    telemetry = Telemetry()

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            headers = [("traceparent", PARENT)]
            cluster.produce("orders", [ProducerRecord(b"x", headers=headers), ProducerRecord(b"y")])
            consumer = AsyncShareConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap_servers,
                connect=cluster.connect,
                group_id="billing",
                start="earliest",
            )
            otel.instrument(
                consumer, tracer_provider=telemetry.tracers, meter_provider=telemetry.meters
            )
            async with consumer:
                while not await consumer.poll(1_000):
                    pass
                await consumer.commit()
                await consumer.commit()  # it has nothing to send
                assert not await consumer.poll(1_000)
                cluster.produce("orders", ["z"])
                while not (await consumer.poll_arrow(1_000)).num_rows:
                    pass
                consumer.wakeup()
                with pytest.raises(WakeupError):
                    await consumer.poll(1_000)

    run_virtual(main)
    names = [name for name, _ in calls(telemetry.spans)]
    assert names == ["poll orders", "commit orders", "poll orders", "poll"]
    (poll, attributes), (_, settled), (_, columns), (_, raised) = calls(telemetry.spans)
    assert attributes["messaging.consumer.group.name"] == "billing"
    assert attributes["messaging.batch.message_count"] == 2
    assert settled["messaging.operation.type"] == "settle"
    assert columns["messaging.batch.message_count"] == 1
    assert raised["error.type"] == "WakeupError"
    first, *_ = telemetry.spans.get_finished_spans()
    assert (first.name, [link.context.trace_id for link in first.links]) == (poll, [TRACE_ID])
