"""Many rows of JSON as one Arrow array, by pyarrow's reader and checks of whole columns.

Invariants:

1. Rows are joined by line breaks, and each begins with ``{`` and ends with ``}``. So no object goes
   over two rows: no row can begin after an inner ``}``, and a text has no line break. As many
   objects as rows are one for each row.
2. The reader has no difference between a property that is null and one that is missing, while the
   rules of a schema do. Rows where that matters are found by their text (``doubtful_rows``) and
   read one by one. In all others a null of the reader is a missing property. The exception are
   properties of flat objects that must be there and may be null.
3. The reader takes ``Inf``, which is no number of Python's json. Such rows are doubtful.
4. A block that breaks a rule is read again in halves, and at last by jsonschema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from kohort.schemas._blocks import Block, decode_block, joined, values_one_by_one
from kohort.schemas._deserializer import Failure
from kohort.schemas._json_types import BY_VALUE, JsonType, stored
from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LateModule("pyarrow")
    pc = LateModule("pyarrow.compute")

EXACT = 1 << 53
"""Numbers up to here are exact as doubles."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
NULL, INFINITE = "null", "Inf"

IsValid = Callable[[dict[str, Any], Any], bool]
"""True if keywords allow a value."""


def decode_rows(
    bodies: pa.Array, of: JsonType, decode_one: Callable[[bytes], Any], is_valid: IsValid | None
) -> tuple[pa.Array, list[Failure]]:
    """Return the values of rows, null for bad rows, and the bad rows with their errors.

    ``decode_one`` returns a value of JSON, and raises for a bad one. ``is_valid`` is None if no
    rules are checked.
    """

    def one_by_one(some: pa.Array) -> tuple[pa.Array, list[Failure]]:
        return values_one_by_one(some, of.arrow, lambda body: stored(decode_one(body), of))

    if of.kind != "object" or not (of.is_read and (of.is_checked or is_valid is None)):
        return one_by_one(bodies)
    block = Block(of.arrow, lambda some: read_at_once(some, of, is_valid), one_by_one)
    doubtful = doubtful_rows(bodies, of, is_checked=is_valid is not None)
    if doubtful is None:
        return decode_block(bodies, block)
    sure, others = pc.indices_nonzero(pc.invert(doubtful)), pc.indices_nonzero(doubtful)
    values, failures = decode_block(bodies.take(sure), block)
    more, more_failures = one_by_one(bodies.take(others))
    numbers, other_numbers = sure.to_pylist(), others.to_pylist()
    failures = [(numbers[row], error) for row, error in failures]
    failures += [(other_numbers[row], error) for row, error in more_failures]
    order = pc.array_sort_indices(pa.concat_arrays([sure, others]))
    return pa.concat_arrays([values, more]).take(order), failures


def doubtful_rows(bodies: pa.Array, of: JsonType, *, is_checked: bool) -> pa.Array | None:
    """Return for each row if it has to be read alone, or None if no row has to."""
    found = []
    if pc.any(pc.match_substring(bodies, INFINITE)).as_py():
        found.append(pc.match_substring_regex(bodies, r"[:\[,]\s*-?Inf(?:[^i]|$)"))
    if is_checked and (names := _unclear_names(of)) is not None:
        has_null = pc.match_substring(bodies, NULL)
        if pc.any(has_null).as_py():
            found.append(pc.and_(has_null, _is_unclear(bodies, *names)))
    doubtful = reduce(pc.or_, found) if found else None
    return doubtful if doubtful is not None and pc.any(doubtful).as_py() else None


def _unclear_names(of: JsonType) -> tuple[list[str], list[str]] | None:
    """Return properties that must be there and may be null, and those with neither.

    None: null and missing are the same for all properties.
    """
    fields = [field for each in of.every() for field in each.fields]
    must = [name for name, inner, is_required in fields if is_required and inner.is_nullable]
    may = [name for name, inner, is_required in fields if not is_required | inner.is_nullable]
    return (must, may) if must or may else None


def _is_unclear(bodies: pa.Array, must: list[str], may: list[str]) -> pa.Array:
    """Return for each row with a null if its text does not show that the null is right.

    It does for a flat object without escapes, where ``"name":`` is nothing but a property.
    """
    if not all(map(PLAIN_NAME.fullmatch, (*must, *may))):
        return pa.repeat(True, len(bodies))
    found = pc.or_(pc.match_substring(bodies, "\\"), pc.greater(pc.count_substring(bodies, "{"), 1))
    for name in must:
        found = pc.or_(found, pc.invert(pc.match_substring_regex(bodies, rf'"{name}"\s*:')))
    for name in may:
        found = pc.or_(found, pc.match_substring_regex(bodies, rf'"{name}"\s*:\s*null'))
    return found


def read_at_once(bodies: pa.Array, of: JsonType, is_valid: IsValid | None) -> pa.Array | None:
    """Return the values of rows, or None if one of them may be bad.

    No row may be doubtful. ``is_valid`` is None if no rules are checked.
    """
    import pyarrow.json

    count = len(bodies)
    try:
        text = bodies.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None  # no UTF-8
    trimmed = pc.ascii_trim(text, " \t\r\n")
    if not pc.all(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))).as_py():
        return None
    nothing, line_break = (pa.scalar(each, pa.large_string()) for each in ("", "\n"))
    lines = joined(pc.binary_join_element_wise(text, nothing, line_break))
    is_closed = any(each.rules.get("additionalProperties") is False for each in of.every())
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            # One block, so that no row is cut.
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(_readable(of.arrow))),
                unexpected_field_behavior="error" if is_closed and is_valid else "ignore",
            ),
        )
    except (pa.ArrowException, OverflowError):
        return None
    if table.num_rows != count:
        return None
    columns = [table.column(name).combine_chunks() for name, _, _ in of.fields]
    parts = [each.cast(kind.type) for each, kind in zip(columns, of.arrow, strict=True)]
    values = pa.StructArray.from_arrays(parts, fields=list(of.arrow))
    if is_valid is not None and not _fits(values, of, is_valid, bodies):
        return None
    return values


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return a type with the lists that pyarrow's reader has."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind


def _fits(values: pa.Array, of: JsonType, is_valid: IsValid, bodies: pa.Array | None) -> bool:
    """True if values obey the rules. ``bodies`` are those of values that are in no others."""
    if of.kind == "object":
        is_here = values.is_valid()
        for (_, inner, is_required), part in zip(of.fields, values.flatten(), strict=True):
            if is_required and part.null_count:
                missing = pc.and_(is_here, part.is_null())
                if inner.is_nullable and bodies is not None:
                    missing = pc.and_not(missing, pc.match_substring(bodies, NULL))
                if pc.any(missing).as_py():
                    return False
            if not _fits(part, inner, is_valid, None):
                return False
        return True
    if of.kind == "array":
        assert of.items is not None
        lengths = pc.min_max(pc.list_value_length(values))
        if not _is_between(lengths, of.rules.get("minItems"), of.rules.get("maxItems")):
            return False
        items = values.flatten()
        if items.null_count and not of.items.is_nullable:
            return False
        return _fits(items, of.items, is_valid, None)
    rules = of.rules
    if of.kind == "string" and ("minLength" in rules or "maxLength" in rules):
        lengths = pc.min_max(pc.utf8_length(values))
        if not _is_between(lengths, rules.get("minLength"), rules.get("maxLength")):
            return False
    if of.kind in ("integer", "number") and not _is_number(values, of):
        return False
    by_value = {name: rules[name] for name in BY_VALUE & set(rules)}
    return not by_value or all(
        is_valid(by_value, each) for each in pc.unique(values.drop_null()).to_pylist()
    )


def _is_number(values: pa.Array, of: JsonType) -> bool:
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return True
    if of.kind == "number" and not (
        -EXACT <= low <= high <= EXACT and pc.all(pc.is_finite(values)).as_py()
    ):
        return False
    rules = of.rules
    over, under = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    return _is_between(bounds, rules.get("minimum"), rules.get("maximum")) and not (
        (over is not None and low <= over) or (under is not None and high >= under)
    )


def _is_between(bounds: pa.Scalar, least: Any, most: Any) -> bool:
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return True
    return not ((least is not None and low < least) or (most is not None and high > most))
