"""Protobuf record by record. test_confluent.py compares it with confluent-kafka."""

from __future__ import annotations

from base64 import standard_b64encode
from typing import Any

import pytest

from kohort.schemas import (
    FramingError,
    ProtobufDeserializer,
    Schema,
    SchemaMismatchError,
    SchemaRegistry,
    UnsupportedSchemaError,
)
from kohort.schemas._protobuf import read_index
from kohort.testing import Cluster
from tests.schemas.framed import framed

pytest.importorskip("google.protobuf")


def file(name: str, *imports: str, message: str = "Order", of: str = "") -> Any:
    """Return a file with one message, whose field is text, or a message of a name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=imports)
    inner = found.message_type.add(name=message)
    inner.field.add(name="a", number=1, label=1, type=11 if of else 9, type_name=of or None)
    return found


def text(descriptor: Any) -> str:
    return standard_b64encode(descriptor.SerializeToString()).decode()


def registry(*schemas: Schema) -> SchemaRegistry:
    found = SchemaRegistry("http://127.0.0.1:9")
    found._schemas.update(enumerate(schemas, 1))
    return found


@pytest.mark.parametrize(
    ("data", "index"),
    [
        (b"\0", ((0,), 1)),
        (b"\x02\x02", ((1,), 2)),
        (b"\x04\0\x82\x01rest", ((0, 65), 4)),
    ],
)
def test_index_of_a_message_is_read(data: bytes, index: Any) -> None:
    assert read_index(data) == index


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x80", b"\x01", b"\xff" * 20, b"\xfe\x7f" * 200])
@pytest.mark.cases
def test_no_index_raises_framing_error(data: bytes) -> None:
    with pytest.raises(FramingError, match="no index of a Protobuf message"):
        read_index(data)


def test_message_is_made_of_the_schema() -> None:
    deserializer = ProtobufDeserializer(registry(Schema(text(file("x")), "PROTOBUF")))
    found = deserializer.deserialize("orders", (), framed(1, b"\0\x0a\x03tea"))
    assert (found.DESCRIPTOR.full_name, found.a) == ("shop.Order", "tea")
    with pytest.raises(FramingError, match=r"no message with the index \[3\]"):
        deserializer.deserialize("orders", (), framed(1, b"\x02\x06"))
    with pytest.raises(SchemaMismatchError, match="do not match the schema 1"):
        deserializer.deserialize("orders", (), framed(1, b"\0\x0a\x09tea"))
    assert deserializer.deserialize("orders", (), None) is None


def test_own_class_needs_no_schema() -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    deserializer = ProtobufDeserializer(registry(), StringValue)
    data = b"\0" + StringValue(value="tea").SerializeToString()
    assert deserializer.deserialize("orders", (), framed(7, data)) == StringValue(value="tea")


def test_imports_are_references_or_installed() -> None:
    item = file("item.proto", "google/protobuf/timestamp.proto", message="Item")
    item.message_type[0].field.add(
        name="at", number=2, label=1, type=11, type_name=".google.protobuf.Timestamp"
    )
    order = file("order.proto", "item.proto", "google/protobuf/timestamp.proto", of=".shop.Item")
    with Cluster(schema_registry=True) as cluster:
        theirs = pytest.importorskip("confluent_kafka.schema_registry")
        client = theirs.SchemaRegistryClient({"url": cluster.schema_registry_url})
        client.register_schema("item", theirs.Schema(text(item), "PROTOBUF"))
        to_item = theirs.SchemaReference("item.proto", "item", 1)
        number = client.register_schema("o", theirs.Schema(text(order), "PROTOBUF", [to_item]))
        found = SchemaRegistry(cluster.schema_registry_url)
        found.prepare([number])
    body = b"\0\x0a\x09\x0a\x03tea\x12\x02\x08\x05"
    message = ProtobufDeserializer(found).deserialize("orders", (), framed(number, body))
    assert (message.a.a, message.a.at.seconds) == ("tea", 5)


@pytest.mark.parametrize(
    ("definition", "match"),
    [
        (lambda: text(file("x", "nowhere.proto")), "imports nowhere.proto, which is neither"),
        (lambda: text(file("x", "google/protobuf/none.proto")), "google/protobuf/none.proto"),
        (lambda: text(file("x", of=".shop.None")), "no file of Protobuf"),
        (lambda: 'syntax = "proto3";', "no file of Protobuf"),
    ],
)
@pytest.mark.cases
def test_schemas_that_cannot_be_read_say_so(definition: Any, match: str) -> None:
    deserializer = ProtobufDeserializer(registry(Schema(definition(), "PROTOBUF")))
    with pytest.raises(UnsupportedSchemaError, match=match):
        deserializer.deserialize("orders", (), framed(1, b"\0"))
