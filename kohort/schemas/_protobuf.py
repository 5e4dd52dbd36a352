"""The deserializer for Protobuf, over google.protobuf.

After the id of the schema comes the index of the message in its file, as zigzag varints. They are
the number of levels and the index at each level. A single 0 stands for the first message.

The registry returns the text of a ``.proto`` file, which Python's library does not parse. So the
client asks for the serialized descriptor.
"""

from __future__ import annotations

from base64 import standard_b64decode
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kohort.schemas._blocks import LONGEST, Block, decode_block
from kohort.schemas._deserializer import Failure, SchemaDeserializer, mismatch
from kohort.schemas._errors import FramingError, UnsupportedSchemaError
from kohort.schemas._framing import Framed, SchemaId
from kohort.schemas._needs import LateModule, check_installed
from kohort.schemas._protobuf_block import protobuf_block
from kohort.schemas._registry import Schema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LateModule("pyarrow")
    pc = LateModule("pyarrow.compute")

DEEPEST = 100
"""Levels of nested messages, above which an index is not one."""
LONGEST_INDEX = 10 * (DEEPEST + 1)
"""Bytes of the longest index."""
KNOWN = ("google/protobuf/", "google/type/")
"""Files of installed packages, which no schema has to refer to."""


class ProtobufDeserializer(SchemaDeserializer):
    """A deserializer that returns Protobuf messages.

    With ``message_type``, a class that protoc generated, all values are of this class and no schema
    is loaded. Without it the classes are made of the schemas in the registry.
    """

    kind = "PROTOBUF"

    def __init__(
        self, registry: SchemaRegistry, message_type: Any = None, *, is_key: bool = False
    ) -> None:
        check_installed("ProtobufDeserializer", "google.protobuf")
        super().__init__(registry, is_key=is_key)
        self.needs_schema: bool = message_type is None
        self._message_type = message_type
        self._messages: dict[SchemaId, _Messages] = {}
        self._blocks: dict[Any, Block] = {}

    def decoder(self, schema: Schema | None) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema, or of any schema for None."""
        given = self._message_type
        messages = None if schema is None else _Messages(schema)

        def decode(framed: Framed) -> Any:
            if framed.tail is None:
                index, length = read_index(framed.data)
                data = framed.data[length:]
            else:
                index, _ = read_index(framed.tail)
                data = framed.data
            message = given if messages is None else messages.message_type(index)
            return message.FromString(data)

        return decode

    def messages(
        self, tail: bytes | None, bodies: pa.Array
    ) -> tuple[list[tuple[Any, pa.Array | None, pa.Array]], list[Failure]]:
        """Return data by the index of their message: index, rows and data."""
        if tail is not None:
            try:
                return [(read_index(tail)[0], None, bodies)], []
            except FramingError as error:
                return [], [(row, error) for row in range(len(bodies))]
        heads = pc.binary_slice(bodies, 0, LONGEST_INDEX)
        first = heads[0].as_py()
        rows: dict[bytes, list[int]] = {}
        failures: list[Failure] = []
        try:
            length = read_index(first)[1]
            if pc.all(pc.starts_with(heads, first[:length])).as_py():
                return [(read_index(first)[0], None, _after(bodies, length))], []
        except FramingError:
            pass
        for row, head in enumerate(heads.to_pylist()):
            try:
                rows.setdefault(head[: read_index(head)[1]], []).append(row)
            except FramingError as error:
                failures.append((row, error))
        found = []
        for head, some in rows.items():
            places = pa.array(some, pa.int64())
            found.append((read_index(head)[0], places, _after(bodies.take(places), len(head))))
        return found, failures

    def column(
        self, schema_id: SchemaId, message: Any, bodies: pa.Array
    ) -> tuple[pa.Array, list[Failure]]:
        """Return data of a message as an array, null for bad rows, and the bad rows with errors."""
        known = None if self._message_type is not None else (schema_id, message)
        block = self._blocks.get(known)
        if block is None:
            block = self._blocks[known] = protobuf_block(self._type_of(schema_id, message))
        values, failures = decode_block(bodies, block)
        return values, [(row, mismatch(schema_id, error)) for row, error in failures]

    def column_type(self) -> pa.DataType | None:
        """Return the type of the class that was passed, or None without one."""
        if self._message_type is None:
            return None
        if None not in self._blocks:
            self._blocks[None] = protobuf_block(self._message_type)
        return self._blocks[None].kind

    def _type_of(self, schema_id: SchemaId, message: Any) -> Any:
        if self._message_type is not None:
            return self._message_type
        if schema_id not in self._messages:
            self._messages[schema_id] = _Messages(self._checked_schema(schema_id))
        return self._messages[schema_id].message_type(message)


def _after(bodies: pa.Array, length: int) -> pa.Array:
    return pc.binary_slice(bodies, length, LONGEST)


def read_index(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the index of the message, and its length. Raises FramingError."""
    levels, place = _varint(data, 0)
    if not 0 <= levels <= DEEPEST:
        raise _no_index()
    if not levels:
        return (0,), place
    index = []
    for _ in range(levels):
        number, place = _varint(data, place)
        index.append(number)
    return tuple(index), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
    raise _no_index()


def _no_index() -> FramingError:
    return FramingError(
        "the bytes after the schema id are no index of a Protobuf message. Check that the producer "
        "uses a Protobuf serializer of the schema registry"
    )


class _Messages:
    """The messages of a schema by their index."""

    def __init__(self, schema: Schema) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool: Any = DescriptorPool()
        self._added: set[str] = set()
        self._types: dict[tuple[int, ...], Any] = {}
        try:
            self._file = self._add("the schema of the record", schema)
        except UnsupportedSchemaError:
            raise
        except Exception as error:
            raise UnsupportedSchemaError(
                f"the schema is no file of Protobuf: {type(error).__name__}: {error}"
            ) from error

    def message_type(self, index: tuple[int, ...]) -> Any:
        """Return the class of the message with an index."""
        found = self._types.get(index)
        if found is None:
            found = self._types[index] = self._made(index)
        return found

    def _made(self, index: tuple[int, ...]) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        names = [self._file.package] if self._file.package else []
        messages = self._file.message_type
        for number in index:
            if not 0 <= number < len(messages):
                raise FramingError(
                    f"the schema has no message with the index {list(index)}. Skip the record, or "
                    "correct the producer"
                )
            names.append(messages[number].name)
            messages = messages[number].nested_type
        return GetMessageClass(self._pool.FindMessageTypeByName(".".join(names)))

    def _add(self, name: str, schema: Schema) -> Any:
        """Add a file and the files that it imports. Return the file."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto.FromString(standard_b64decode(schema.text))
        file.name = name
        for each in file.dependency:
            if each not in self._added:
                self._added.add(each)
                if each in schema.references:
                    self._add(each, schema.references[each])
                else:
                    self._add_known(each)
        self._pool.Add(file)
        return file

    def _add_known(self, name: str) -> None:
        from google.protobuf import descriptor_pool
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        if name.startswith(KNOWN):
            try:
                import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            except ImportError:
                pass
        try:
            known = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            raise UnsupportedSchemaError(
                f"the schema imports {name}, which is neither among its references nor installed"
            ) from None
        file = FileDescriptorProto()
        known.CopyToProto(file)
        for each in file.dependency:
            if each not in self._added:
                self._added.add(each)
                self._add_known(each)
        self._pool.Add(file)
