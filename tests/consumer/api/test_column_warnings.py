"""The first table of a consumer with deserializers warns, because columns have bytes."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer

NAMES = [
    ({"value_deserializer": json.loads}, "do not call the value_deserializer of"),
    ({"key_deserializer": bytes.decode}, "do not call the key_deserializer of"),
    (
        {"key_deserializer": bytes.decode, "value_deserializer": json.loads},
        "do not call the key_deserializer and value_deserializer of",
    ),
]
WAYS = pytest.mark.parametrize("way", ["poll_arrow", "poll_batches"])


@WAYS
@pytest.mark.parametrize(("deserializers", "text"), NAMES)
def test_first_table_warns_if_a_deserializer_is_set(
    topic: str, make: MakeConsumer, way: str, deserializers: dict[str, Any], text: str
) -> None:
    consumer = make(topic, group_id=None, **deserializers)
    with pytest.warns(UserWarning, match=text) as caught:
        getattr(consumer, way)()
    assert [each.filename for each in caught] == [__file__]
    for other in (consumer.poll_arrow, consumer.poll_batches, consumer.poll):
        other()  # a warning would be an error


def test_no_record_is_lost_if_the_warning_is_an_error(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"1"], partition=0)
    consumer = make(topic, group_id=None, value_deserializer=int)
    with pytest.raises(UserWarning, match="value_deserializer"):
        consumer.poll_batches(20_000)
    [columns] = consumer.poll_batches(20_000)
    assert list(columns.value) == [b"1"]


def test_each_consumer_warns(topic: str, make: MakeConsumer) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in "ab":
            consumer = make(topic, group_id=None, value_deserializer=int)
            consumer.poll_batches()
            consumer.poll_batches()
    assert len(caught) == 2


@WAYS
def test_no_warning_without_deserializers(
    topic: str, make: MakeConsumer, options: dict[str, Any], way: str
) -> None:
    getattr(make(topic, group_id=None), way)()
    properties = {
        "bootstrap.servers": options["bootstrap_servers"],
        "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    }
    with KafkaConsumer.from_properties(properties, topic) as consumer:
        getattr(consumer, way)()


@pytest.mark.anyio
@WAYS
async def test_async_consumer_warns_once(topic: str, options: dict[str, Any], way: str) -> None:
    async with AsyncKafkaConsumer(topic, value_deserializer=int, **options) as consumer:
        with pytest.warns(UserWarning, match="value_deserializer") as caught:
            await getattr(consumer, way)()
        assert [each.filename for each in caught] == [__file__]
        await consumer.poll_arrow()
        await consumer.poll_batches()
