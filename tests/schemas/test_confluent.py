"""Records as the deserializers of confluent-kafka read them."""

from __future__ import annotations

import json
from base64 import standard_b64encode
from typing import Any
from uuid import UUID

import pytest

from kohort.schemas import (
    AvroDeserializer,
    JsonDeserializer,
    ProtobufDeserializer,
    Schema,
    SchemaMismatchError,
    SchemaRegistry,
    columns,
)
from kohort.testing import Cluster
from tests.schemas.framed import avro, table
from tests.schemas.random_avro import RandomAvro
from tests.schemas.random_json import RandomJson

pytest.importorskip("fastavro")
theirs = pytest.importorskip("confluent_kafka.schema_registry")
pytest.importorskip("httpx2")


def context(headers: Any) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("orders", MessageField.VALUE, headers)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_avro_equals_confluent_for_random_schemas(seed: int) -> None:
    """Twenty schemas each, in both framings, alone and with the schema of the reader."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer as Theirs

    client = theirs.SchemaRegistryClient.new_client({"url": "mock://"})
    for number in range(20):
        source = RandomAvro(20 * seed + number, with_unions=True)
        schema = source.record()
        text = json.dumps(schema)
        stored = client.register_schema_full_response(
            f"s{number}-value", theirs.Schema(text, "AVRO")
        )
        guid = UUID(stored.guid)
        registry = SchemaRegistry("http://127.0.0.1:9")
        registry._schemas[stored.schema_id] = registry._schemas[guid] = Schema(text)
        reader = schema | {"fields": [*schema["fields"][:-1], ADDED]}
        for own, other in (
            (AvroDeserializer(registry), Theirs(client)),
            (AvroDeserializer(registry, reader), Theirs(client, json.dumps(reader))),
        ):
            for _ in range(3):
                data = avro(schema, source.value(schema)) + b"\0"  # they need a byte of data
                v0 = b"\0" + stored.schema_id.to_bytes(4, "big") + data
                v1 = b"\x01" + guid.bytes + data
                header = [("__value_schema_id", b"\x01" + guid.bytes)]
                for headers, framed in (([], v0), ([], v1), (header, data + b"\0" * 5)):
                    expected = other(framed, context(headers))
                    assert own.deserialize("orders", headers, framed) == expected


ADDED = {"name": "added", "type": ["null", "string"], "default": None}


def both_framings(schema_id: int, guid: str, data: bytes, index: bytes = b"") -> list[Any]:
    """Return headers and bytes in all framings. ``index`` is that of a Protobuf message."""
    v1 = b"\x01" + UUID(guid).bytes + index
    v0 = b"\0" + schema_id.to_bytes(4, "big") + index
    return [([], v0 + data), ([], v1 + data), ([("__value_schema_id", v1)], data)]


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_json_equals_confluent_for_random_schemas(seed: int) -> None:
    """Twenty schemas each, with values that are valid and such that are not."""
    pytest.importorskip("jsonschema")
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer as Theirs
    from confluent_kafka.serialization import SerializationError

    client = theirs.SchemaRegistryClient.new_client({"url": "mock://"})
    for number in range(20):
        source = RandomJson(20 * seed + number)
        text = json.dumps(source.schema())
        stored = client.register_schema_full_response(
            f"s{number}-value", theirs.Schema(text, "JSON")
        )
        registry = SchemaRegistry("http://127.0.0.1:9")
        for each in (stored.schema_id, UUID(stored.guid)):
            registry._schemas[each] = Schema(text, "JSON")
        own, other = JsonDeserializer(registry), Theirs(None, schema_registry_client=client)
        for _ in range(4):
            value = source.value(json.loads(text))
            data = json.dumps(value).encode()
            for headers, framed in both_framings(stored.schema_id, stored.guid, data):
                try:
                    expected = other(framed, context(headers))
                except SerializationError:
                    with pytest.raises(SchemaMismatchError):
                        own.deserialize("orders", headers, framed)
                else:
                    assert own.deserialize("orders", headers, framed) == expected == value


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_protobuf_equals_confluent_for_random_schemas(seed: int) -> None:
    """Twenty files each, with messages in messages, as a class of theirs and of the schema."""
    pytest.importorskip("google.protobuf")
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as Theirs
    from confluent_kafka.schema_registry.serde import SchemaId

    from tests.schemas.random_protobuf import RandomProtobuf

    client = theirs.SchemaRegistryClient.new_client({"url": "mock://"})
    for number in range(20):
        source = RandomProtobuf(20 * seed + number)
        text = standard_b64encode(source.file.SerializeToString()).decode()
        stored = client.register_schema_full_response(
            f"s{number}-value", theirs.Schema(text, "PROTOBUF")
        )
        registry = SchemaRegistry("http://127.0.0.1:9")
        for each in (stored.schema_id, UUID(stored.guid)):
            registry._schemas[each] = Schema(text, "PROTOBUF")
        by_schema = ProtobufDeserializer(registry)
        chosen = source.random.randrange(len(source.places))
        index, message_type = source.places[chosen][0], source.classes[chosen]
        other = Theirs(message_type, {"use.deprecated.format": False}, client)
        own = ProtobufDeserializer(registry, message_type)
        prefix = SchemaId("PROTOBUF", 0, message_indexes=list(index)).id_to_bytes()[5:]
        for _ in range(2):
            message = source.message(message_type)
            data = message.SerializeToString()
            for headers, framed in both_framings(stored.schema_id, stored.guid, data, prefix):
                expected = other(framed, context(headers))
                assert own.deserialize("orders", headers, framed) == expected == message
                found = by_schema.deserialize("orders", headers, framed)
                assert found.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
                assert str(found) == str(message)


def record(name: str, *fields: Any) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def test_references_equal_confluent() -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer as Theirs

    item = record("Item", {"name": "unit", "type": "shop.Unit"})
    unit = '{"type": "enum", "name": "Unit", "namespace": "shop", "symbols": ["KG", "L"]}'
    order = record(
        "Order",
        {"name": "items", "type": {"type": "array", "items": "Item"}},
        {"name": "unit", "type": ["null", "shop.Unit"]},
    )
    with Cluster(schema_registry=True) as cluster:
        client = theirs.SchemaRegistryClient({"url": cluster.schema_registry_url})
        to_unit = theirs.SchemaReference("shop.Unit", "unit", 1)
        to_item = theirs.SchemaReference("shop.Item", "item", 1)
        client.register_schema("unit", theirs.Schema(unit, "AVRO"))
        client.register_schema("item", theirs.Schema(item, "AVRO", [to_unit]))
        number = client.register_schema("o", theirs.Schema(order, "AVRO", [to_item, to_unit]))
        registry = SchemaRegistry(cluster.schema_registry_url)
        registry.prepare([number])
        # Order with items [KG, L], and the unit L.
        data = b"\0" + number.to_bytes(4, "big") + b"\x04\0\x02\0\x02\x02"
        expected = {"items": [{"unit": "KG"}, {"unit": "L"}], "unit": "L"}
        own = AvroDeserializer(registry)
        assert own.deserialize("orders", [], data) == Theirs(client)(data, context([])) == expected
    assert columns(table([data]), value=own).column("value").to_pylist() == [expected]
