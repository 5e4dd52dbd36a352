"""Columns of a writer's schema as columns of a reader's schema, by Avro's rules.

It covers fields that were added with a default, removed or moved, types that may be null now, and
wider numbers. ``is_covered()`` says if there are other changes. Then fastavro reads the records one
by one.

Both schemas are those of ``AvroType.plain``. Definitions have their original name as ``origin``,
and fields their default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")

WIDER = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
}
SIMPLE_DEFAULTS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "double": (int, float),
    "string": (str,),
}


def is_covered(writer: Any, reader: Any) -> bool:
    """True if :func:`evolved` follows Avro's rules for these two schemas."""
    if writer is None or reader is None:
        return False
    if isinstance(writer, list) and not isinstance(reader, list):
        return False  # a null would be an error of its row
    writer, reader = branch(writer), branch(reader)
    kind, wanted = kind_of(writer), kind_of(reader)
    if kind != wanted:
        return isinstance(writer, str) and isinstance(reader, str) and wanted in WIDER.get(kind, ())
    if isinstance(writer, str) or isinstance(reader, str):
        return bool(writer == reader)
    if kind == "array":
        return is_covered(writer["items"], reader["items"])
    if kind != "record":
        names = ("origin", "symbols", "size", "logicalType", "precision", "scale")
        return all(writer.get(name) == reader.get(name) for name in names)
    if writer["origin"] != reader["origin"]:
        return False
    written = {field["name"]: field["type"] for field in writer["fields"]}
    for field in reader["fields"]:
        if field["name"] in written:
            if not is_covered(written[field["name"]], field["type"]):
                return False
        elif not _has_simple_default(field):
            return False
    return True


def evolved(array: pa.Array, writer: Any, reader: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of the writer's type as the reader's type ``kind``."""
    writer, reader = branch(writer), branch(reader)
    if writer == reader:
        return array.cast(kind)
    if kind_of(reader) == "record":
        places = {field["name"]: place for place, field in enumerate(writer["fields"])}
        parts, inner = array.flatten(), []
        for place, (field, wanted) in enumerate(zip(reader["fields"], kind, strict=True)):
            found = places.get(field["name"])
            if found is None:
                default = pa.scalar(field["default"], wanted.type)
                inner.append(pa.repeat(default, len(array)))
            else:
                of = writer["fields"][found]["type"], reader["fields"][place]["type"]
                inner.append(evolved(parts[found], *of, wanted.type))
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
    if kind_of(reader) == "array":
        items = evolved(array.values, writer["items"], reader["items"], kind.value_type)
        mask = array.is_null() if array.null_count else None
        return pa.LargeListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    return array.cast(kind, safe=False)  # a large number loses digits as a double, as in Avro


def branch(plain: Any) -> Any:
    """Return the type of a union with null, or the type itself."""
    if isinstance(plain, list):
        [plain] = [each for each in plain if each != "null"]
    return plain


def kind_of(plain: Any) -> str:
    """Return the name of a type, such as ``record``."""
    return str(plain["type"]) if isinstance(plain, dict) else str(plain)


def _has_simple_default(field: Any) -> bool:
    if "default" not in field:
        return False
    default = field["default"]
    if default is None:
        return isinstance(field["type"], list)
    allowed = SIMPLE_DEFAULTS.get(str(branch(field["type"])), ())
    return type(default) in allowed
