"""docs/migration.md: frameworks run with kohort's consumer. Skipped without them.

``pip install faststream[confluent] kstreams opentelemetry-instrumentation-aiokafka
opentelemetry-sdk`` has all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.testing import Cluster
from tests.support.snippets import ROOT, replaced, run_elsewhere, run_python

PAGE = ROOT / "docs" / "migration.md"
WARN = 'import warnings\n\nwarnings.simplefilter("default")  # frameworks use deprecated names\n'
FASTSTREAM = """
import asyncio

from aiokafka import AIOKafkaConsumer
from faststream import FastStream

app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
async def read(value: str) -> None:
    print(AIOKafkaConsumer.__module__, value)
    app.exit()


asyncio.run(app.run())
"""
CONFLUENT = """
import asyncio

from confluent_kafka import Consumer
from faststream import FastStream

app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
async def read(value: str) -> None:
    print(Consumer.__module__, value)
    app.exit()


asyncio.run(app.run())
"""
KSTREAMS = """
import asyncio


async def read(record: kstreams.ConsumerRecord) -> None:
    print(kstreams.Consumer.__mro__[1].__module__, record.value.decode())
    done.set()


async def main() -> None:
    global done
    done = asyncio.Event()
    stream = kstreams.stream("orders", group_id="billing", auto_offset_reset="earliest")
    engine.add_stream(stream(read))
    await engine.start()
    await done.wait()
    await engine.stop()


asyncio.run(main())
"""
OPENTELEMETRY = """
import asyncio

from aiokafka import AIOKafkaConsumer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)


async def main() -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers="localhost:9092",
        group_id="billing",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    record = await consumer.getone()
    await consumer.stop()
    [span] = spans.get_finished_spans()
    assert span.name == "orders receive", span.name
    print(AIOKafkaConsumer.__module__, record.value.decode())


asyncio.run(main())
"""


def block(text: str) -> str:
    """Return the one block of the page that has the text."""
    [found] = [code for code in run_elsewhere(PAGE) if text in code]
    return found


@pytest.mark.parametrize(
    ("module", "use", "old", "new"),
    [
        ("faststream.kafka", FASTSTREAM, "localhost:9092", "{servers}"),
        ("faststream.confluent", CONFLUENT, "localhost:9092", "{servers}"),
        (
            "kstreams",
            KSTREAMS,
            'title="billing"',
            'title="billing", backend=kstreams.backends.Kafka(bootstrap_servers=["{servers}"])',
        ),
        ("opentelemetry.instrumentation.aiokafka", OPENTELEMETRY, "localhost:9092", "{servers}"),
    ],
    ids=["FastStream", "FastStream on confluent-kafka", "kstreams", "OpenTelemetry"],
)
def test_a_framework_reads_with_kohort(
    module: str, use: str, old: str, new: str, tmp_path: Path
) -> None:
    code = WARN + block(module) + use
    pytest.importorskip(module)
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea"])
        code = replaced(code, {old: new.format(servers=cluster.bootstrap_servers)})
        output = run_python(code, tmp_path)
    # FastStream prints its log, too.
    [shown] = [line for line in output.splitlines() if line.startswith("kohort.compat.")]
    assert shown.endswith(" tea")
