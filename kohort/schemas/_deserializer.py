"""The base of the record deserializers: framing, schema, decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kohort import KafkaError
from kohort.schemas._errors import SchemaMismatchError
from kohort.schemas._framing import Framed, SchemaId, header_name, unframe
from kohort.schemas._needs import LateModule
from kohort.schemas._registry import Schema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")

Headers = Iterable[tuple[str, bytes | None]] | None


Failure = tuple[int, Exception]
"""Row that cannot be decoded, and the reason."""


def mismatch(schema_id: SchemaId, cause: Exception) -> SchemaMismatchError:
    """Return the error for data that a decoder of the schema refuses."""
    return SchemaMismatchError(
        f"the data do not match the schema {schema_id}: {type(cause).__name__}: {cause}. "
        "Skip the record, or correct the producer"
    )


class SchemaDeserializer(ABC):
    """A deserializer for values, or with ``is_key`` for keys. It does no I/O."""

    kind: str
    """The kind of schemas that it reads, in the registry's spelling."""
    needs_schema: bool = True
    """False if the bytes after the id can be decoded without their schema."""

    def __init__(self, registry: SchemaRegistry, *, is_key: bool) -> None:
        self.registry: SchemaRegistry = registry
        self.header: str = header_name(is_key=is_key)
        """Name of the header that may have the id."""
        self._decoders: dict[SchemaId | None, Callable[[Framed], Any]] = {}

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the value of framed bytes. None stays None.

        Raises FramingError, SchemaNotPreparedError, UnknownSchemaError, or SchemaMismatchError for
        bytes that the schema does not describe.
        """
        if data is None:
            return None
        framed = unframe(data, headers, self.header)
        known_id = framed.schema_id if self.needs_schema else None
        decode = self._decoders.get(known_id)
        if decode is None:
            schema = None if known_id is None else self._checked_schema(known_id)
            decode = self._decoders[known_id] = self.decoder(schema)
        try:
            return decode(framed)
        except KafkaError:
            raise
        except Exception as error:
            raise mismatch(framed.schema_id, error) from error

    def ids(self, records: Iterable[Any]) -> set[SchemaId]:
        """Return the ids of the schemas of ``(headers, data)`` pairs, for ``prepare()``.

        Pairs without a schema id are left out.
        """
        found = set()
        for headers, data in records:
            if data is not None:
                try:
                    found.add(unframe(data, headers, self.header).schema_id)
                except ValueError:
                    pass
        return found

    def messages(
        self, tail: bytes | None, bodies: pa.Array
    ) -> tuple[list[tuple[Any, pa.Array | None, pa.Array]], list[Failure]]:
        """Return data by their kind of message: kind, rows and data. None stands for all rows.

        Only Protobuf has several kinds. ``tail`` has the bytes after an id in a header. Rows
        without a kind are returned with their errors.
        """
        return [(None, None, bodies)], []

    @abstractmethod
    def column(
        self, schema_id: SchemaId, message: Any, bodies: pa.Array
    ) -> tuple[pa.Array, list[Failure]]:
        """Return data of a schema as an array, null for bad rows, and the bad rows with errors.

        ``message`` is a kind of :meth:`messages`. Raises UnsupportedSchemaError for schemas that
        are no columns.
        """

    def column_type(self) -> pa.DataType | None:
        """Return the type of all columns, or None if the schemas of the records decide."""
        return None

    def _checked_schema(self, schema_id: SchemaId) -> Schema:
        schema = self.registry.schema(schema_id)
        if schema.kind != self.kind:
            raise SchemaMismatchError(
                f"the schema {schema_id} is {schema.kind} and not {self.kind}: use the "
                "deserializer of that kind"
            )
        return schema

    @abstractmethod
    def decoder(self, schema: Schema | None) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema.

        ``schema`` is None if :attr:`needs_schema` is False.
        """
