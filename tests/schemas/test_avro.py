"""Avro record by record, beside the deserializer of confluent-kafka."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, RecordDeserializationError
from kohort.errors import DataError
from kohort.schemas import (
    AvroDeserializer,
    FramingError,
    SchemaMismatchError,
    SchemaNotPreparedError,
    SchemaRegistry,
    UnknownSchemaError,
    UnsupportedSchemaError,
)
from kohort.testing import Cluster
from tests.schemas.framed import avro, framed

pytest.importorskip("fastavro")

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "int"}],
    }
)
TEA = {"item": "tea", "price": 3}


class Known(SchemaRegistry):
    """A registry whose cache is filled by hand."""

    def __init__(self, **schemas: Any) -> None:
        super().__init__("http://127.0.0.1:9")
        for name, schema in schemas.items():
            self._schemas[int(name[1:])] = schema


def known(*texts: str) -> SchemaRegistry:
    from kohort.schemas import Schema

    return Known(**{f"n{number}": Schema(text) for number, text in enumerate(texts, 1)})


def test_poll_loads_schemas_and_skips_only_bad_records() -> None:
    wrong: list[BaseException | None] = []

    def on_error(error: DataError) -> str:
        wrong.append(error.__cause__)
        return "skip"

    with Cluster(topics={"orders": 1}, schema_registry=True) as cluster:
        registry = SchemaRegistry(cluster.schema_registry_url)
        number = registry.register("orders-value", ORDER)
        good = framed(number, avro(ORDER, TEA))
        cluster.produce("orders", [good, framed(77, b"x"), b"raw", framed(number, b"\x06te"), good])
        with KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(registry),
            on_error=on_error,
        ) as consumer:
            found = [next(consumer) for _ in range(2)]
    assert [(record.offset, record.value) for record in found] == [(0, TEA), (4, TEA)]
    assert [type(error) for error in wrong] == [
        UnknownSchemaError,
        FramingError,
        SchemaMismatchError,
    ]


@pytest.mark.anyio
async def test_unknown_schema_is_an_error_of_the_record() -> None:
    with Cluster(topics={"orders": 1}, schema_registry=True) as cluster:
        cluster.produce("orders", [framed(77, b"x")])
        async with AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(SchemaRegistry(cluster.schema_registry_url)),
        ) as consumer:
            with pytest.raises(RecordDeserializationError, match="does not have the schema 77"):
                await consumer.poll(timeout_ms=60_000)


def test_deserializer_does_no_io() -> None:
    deserializer = AvroDeserializer(SchemaRegistry("http://127.0.0.1:9"))
    with pytest.raises(SchemaNotPreparedError):
        deserializer.deserialize("orders", (), framed(1, b"x"))
    assert deserializer.deserialize("orders", (), None) is None


def test_reader_schema_adds_defaults_and_drops_fields() -> None:
    newer = json.loads(ORDER)
    newer["fields"] = [
        {"name": "price", "type": "long"},
        {"name": "currency", "type": "string", "default": "EUR"},
    ]
    deserializer = AvroDeserializer(known(ORDER), newer)
    found = deserializer.deserialize("orders", (), framed(1, avro(ORDER, TEA)))
    assert found == {"price": 3, "currency": "EUR"}


def test_bytes_alone_have_no_length() -> None:
    deserializer = AvroDeserializer(known('"bytes"', '{"type": "bytes"}'))
    assert deserializer.deserialize("orders", (), framed(1, b"\x06abc")) == b"\x06abc"
    assert deserializer.deserialize("orders", (), framed(2, b"abc")) == b"abc"


def test_other_kinds_and_broken_schemas_are_refused() -> None:
    from kohort.schemas import Schema

    registry = Known(n1=Schema("{}", "JSON"), n2=Schema('{"type": "nope"}'), n3=Schema("{"))
    deserializer = AvroDeserializer(registry)
    with pytest.raises(SchemaMismatchError, match="is JSON and not AVRO"):
        deserializer.deserialize("orders", (), framed(1, b"x"))
    registry._schemas[4] = Schema('["null", "shop.Unit"]')
    with pytest.raises(UnsupportedSchemaError, match=r"uses 'shop.Unit', which neither"):
        deserializer.deserialize("orders", (), framed(4, b"x"))
    for number in (2, 3):
        with pytest.raises(UnsupportedSchemaError):
            deserializer.deserialize("orders", (), framed(number, b"x"))


def test_key_has_a_header_of_its_own() -> None:
    guid = UUID(int=7)
    registry = known()
    registry._schemas[guid] = known('"string"').schema(1)
    headers = (("__key_schema_id", b"\x01" + guid.bytes),)
    keys = AvroDeserializer(registry, is_key=True)
    assert keys.deserialize("orders", headers, b"\x06tea") == "tea"
    with pytest.raises(FramingError):
        AvroDeserializer(registry).deserialize("orders", headers, b"\x06tea")


def test_ids_of_records_are_those_to_prepare() -> None:
    records = [((), framed(7, b"")), ((), None), ((), b"raw"), ((), framed(UUID(int=1), b""))]
    assert AvroDeserializer(known()).ids(records) == {7, UUID(int=1)}
