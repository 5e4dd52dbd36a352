"""Codecs: a function for each message, version and direction, generated as source and compiled.

A codec in Python is fast if it is straight-line code without a look-up in tables. A run of fields
of fixed width is one call of :mod:`struct`. All other fields are a few lines each.

The decoder gets a memoryview, an offset and the end. It compares every length with the end before
use. The generated source uses these names:

- ``b`` the buffer, ``o`` the offset, ``e`` the end
- ``m`` the message, ``n`` a length
- ``a`` the append method of the list of output parts
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from kohort.protocol._layout import FieldLayout, StructLayout, struct_layout
from kohort.protocol._struct import FieldSpec, Message, Struct
from kohort.protocol._types import STRUCT_CODES, Buffer
from kohort.protocol._varint import read_uvarint, uvarint

MAX_STRING = 0x7FFF
"""Most bytes of UTF-8 in a string, in every encoding."""
MAX_ELEMENTS = 1_000_000
"""Most elements of an array. Kafka refuses larger ones since 4.4, in clients and brokers."""
MAX_TAGS = 10_000
"""Most tagged fields of a structure. Kafka refuses more since 4.4."""


_SHORT_UVARINTS = tuple(uvarint(n) for n in range(128))
Decode = Callable[[memoryview, int, int], tuple[Any, int]]
Encode = Callable[[Any, Callable[[Buffer], None]], None]


class ShortError(ValueError):
    """A length or count that exceeds the remaining bytes."""


class CountError(ValueError):
    """More elements or tagged fields than Kafka reads."""


class AbsentError(ValueError):
    """A value of a field that the version does not have or allow."""


def _short(what: str, length: int, left: int) -> None:
    raise ShortError(f"{what}: a length of {length} where {left} bytes are left")


def _too_many(what: str, count: int, bound: int) -> None:
    raise CountError(f"{what}: a count of {count}, the bound is {bound}")


def _skip_tags(data: Buffer, at: int, end: int) -> int:
    """Return the offset after the tagged fields at ``at``, all of which are unknown."""
    count, at = read_uvarint(data, at)
    if count > MAX_TAGS:
        _too_many("tagged fields", count, MAX_TAGS)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size > end - at:
            _short("tagged field", size, end - at)
        at += size
    return at


def _wrong_end(name: str, over: int) -> None:
    how = "short" if over > 0 else "long"
    raise ShortError(f"{name}: its tagged field is {abs(over)} bytes too {how}")


def _too_long(name: str, length: int) -> None:
    raise AbsentError(f"{name} is a string of {length} bytes, the bound is {MAX_STRING}")


def _absent(spec: FieldSpec, message: Struct, first: str) -> None:
    shown = spec.shown(getattr(message, spec.name))
    raise AbsentError(f"{spec.name}={shown} cannot be sent: the field is in versions {first} only")


def _not_null(name: str) -> None:
    raise AbsentError(f"{name} must not be None in this version")


def _wrong_uuid(name: str) -> None:
    raise AbsentError(f"{name} must be 16 bytes")


class _Compiler:
    """Compiler of a message in one direction.

    A client reads no requests and writes no responses, and compiling costs time at the start.
    """

    def __init__(self, message: type[Message], version: int, *, reads: bool) -> None:
        if version not in message.versions:
            name = message.__name__
            raise ValueError(f"{name} has versions {message.versions}, not {version}")
        self.reads = reads
        self.message = message
        self.version = version
        self.source: list[str] = []
        self.names: dict[type[Struct], str] = {}
        self.env: dict[str, Any] = {
            "absent": _absent,
            "i2": struct.Struct(">h").unpack_from,
            "i4": struct.Struct(">i").unpack_from,
            "not_null": _not_null,
            "p2": struct.Struct(">h").pack,
            "p4": struct.Struct(">i").pack,
            "pack": struct.pack,
            "read_uvarint": read_uvarint,
            "short": _short,
            "skip_tags": _skip_tags,
            "unpack_from": struct.unpack_from,
            "u1": _SHORT_UVARINTS,
            "uv": uvarint,
            "too_long": _too_long,
            "too_many": _too_many,
            "wrong_end": _wrong_end,
            "wrong_uuid": _wrong_uuid,
        }

    def compile(self) -> Any:
        name = self.struct(self.message)
        exec("\n".join(self.source), self.env)
        return self.env[f"{'decode' if self.reads else 'encode'}_{name}"]

    def struct(self, cls: type[Struct]) -> str:
        """Generate the function of a structure once. Return its name without the direction."""
        if cls in self.names:
            return self.names[cls]
        name = self.names[cls] = f"{cls.__name__}_{len(self.names)}"
        self.env[f"class_{name}"] = cls
        layout = struct_layout(self.message, cls, self.version)
        write = self.reader if self.reads else self.writer
        self.source += write(name, layout)
        return name

    def bind(self, prefix: str, value: object) -> str:
        name = f"{prefix}_{len(self.env)}"
        self.env[name] = value
        return name

    def default(self, field: FieldLayout) -> str:
        """Return the source of a new default value."""
        spec = field.spec
        if field.array:
            return "None" if spec.default_factory is None else "[]"
        if spec.default_factory is not None:
            return f"{self.bind('make', spec.default_factory)}()"
        return repr(spec.default)

    def set_default(self, field: FieldLayout) -> list[str]:
        """Return the lines that store a new default value in ``m``."""
        factory = field.spec.default_factory
        value = None if field.array or factory is None else factory()
        if not isinstance(value, Struct) or not _is_flat(value):
            return [f"m.{field.name} = {self.default(field)}"]
        # Most structures in a response have their defaults. A call of the factory costs more.
        made = self.bind("class", type(value))
        names = [spec.name for spec in value._fields]
        targets = "".join(f"x.{name}, " for name in names)
        values = "".join(f"{getattr(value, name)!r}, " for name in names)
        return [f"m.{field.name} = x = {made}.__new__({made})", f"{targets}= {values}"]

    def is_default(self, field: FieldLayout) -> str:
        """Return the source of a test for the default value."""
        value = f"m.{field.name}"
        spec = field.spec
        if field.array:
            return f"{value} is None" if spec.default_factory is None else f"{value} == []"
        if spec.default_factory is not None:
            return self.equals(value, spec.default_factory())
        if spec.default is None:
            return f"{value} is None"
        return f"{value} == {spec.default!r}"

    def equals(self, value: str, default: Any) -> str:
        """Return the source of a comparison by fields, ten times as fast as that of a structure."""
        if not isinstance(default, Struct):
            return f"{value} == {self.bind('default', default)}"
        pairs = [(f"{value}.{spec.name}", getattr(default, spec.name)) for spec in default._fields]
        return " and ".join(
            [f"{value} is not None", *(self.equals(name, part) for name, part in pairs)]
        )

    # -- reading ----------------------------------------------------------------------------

    def reader(self, name: str, layout: StructLayout) -> list[str]:
        out = [f"def decode_{name}(b, o, e):", f" m = class_{name}.__new__(class_{name})"]
        for field in layout.tagged + layout.absent:
            out += [" " + line for line in self.set_default(field)]
        for run in _runs(layout.inline):
            if run[0].fixed:
                codec = struct.Struct(">" + "".join(STRUCT_CODES[f.kind] for f in run))
                targets = ", ".join(f"m.{f.name}" for f in run)
                out.append(f" {targets}, = {self.bind('unpack', codec.unpack_from)}(b, o)")
                out.append(f" o += {codec.size}")
            else:
                out += [" " + line for line in self.read(run[0], tagged=False)]
        if layout.flexible:
            out += [" " + line for line in self.read_tags(layout.tagged)]
        out.append(" return m, o")
        return out

    def read_tags(self, tagged: list[FieldLayout]) -> list[str]:
        if not tagged:
            return ["n = b[o]; o += 1", "if n: o = skip_tags(b, o - 1, e)"]
        out = ["n = b[o]; o += 1", "if n:", " if n > 127: n, o = read_uvarint(b, o - 1)"]
        out += [f" if n > {MAX_TAGS}: too_many('tagged fields', n, {MAX_TAGS})"]
        out += [" for _ in range(n):", "  t, o = read_uvarint(b, o)", "  n, o = read_uvarint(b, o)"]
        out += ["  if n > e - o: short('tagged field', n, e - o)", "  te = o + n"]
        for position, field in enumerate(tagged):
            out.append(f"  {'elif' if position else 'if'} t == {field.spec.tag}:")
            out += ["   " + line for line in self.read(field, tagged=True)]
            out.append(f"   if o != te: wrong_end({field.name!r}, o - te)")
        out.append("  o = te")
        return out

    def read(self, field: FieldLayout, tagged: bool) -> list[str]:
        """Return the lines that read one field into ``m``."""
        target = f"m.{field.name}"
        if field.array:
            return self.read_array(field, target)
        if field.fixed:
            code = STRUCT_CODES[field.kind]
            size = struct.calcsize(">" + code)
            return [f"{target}, = unpack_from('>{code}', b, o)", f"o += {size}"]
        if field.struct is not None:
            inner = self.struct(field.struct)
            plain = f"{target}, o = decode_{inner}(b, o, e)"
            if not field.nullable:
                return [plain]
            # A nullable struct begins with a byte, -1 or 1 in line and 0 or 1 in a tagged field.
            null = "n == 0" if tagged else "n > 127"
            return ["n = b[o]; o += 1", f"if {null}: {target} = None", f"else: {plain}"]
        out = _read_length(field.compact, 2 if field.kind == "string" else 4)
        if not field.nullable:
            out += [
                f"if not 0 <= n <= e - o: short({field.name!r}, n, e - o)",
                f"{target} = {_slice(field.kind)}; o += n",
            ]
            return out
        out += [
            f"if n < 0: {target} = None",
            "else:",
            f" if n > e - o: short({field.name!r}, n, e - o)",
            f" {target} = {_slice(field.kind)}; o += n",
        ]
        return out

    def element_size(self, field: FieldLayout) -> int:
        """Return the least number of bytes of the field or of one element of its array."""
        if field.struct is not None:
            return self.least_size(struct_layout(self.message, field.struct, self.version))
        if field.kind in STRUCT_CODES:
            return struct.calcsize(">" + STRUCT_CODES[field.kind])
        return 1 if field.compact else 2 if field.kind == "string" else 4

    def least_size(self, layout: StructLayout) -> int:
        size = 1 if layout.flexible else 0
        for field in layout.inline:
            if field.array:
                size += 1 if field.compact else 4
            elif field.struct is not None and field.nullable:
                size += 1
            else:
                size += self.element_size(field)
        return size

    def read_array(self, field: FieldLayout, target: str) -> list[str]:
        out = _read_length(field.compact, 4)
        null = f" {target} = None" if field.nullable else f" short({field.name!r}, n, e - o)"
        size = max(self.element_size(field), 1)
        out += ["if n < 0:", null, "else:"]
        out += [f" if n * {size} > e - o: short({field.name!r}, n, e - o)"]
        out += [f" if n > {MAX_ELEMENTS}: too_many({field.name!r}, n, {MAX_ELEMENTS})"]
        if field.struct is not None:
            inner = self.struct(field.struct)
            out += [f" l = {target} = []", " for _ in range(n):"]
            out += [f"  x, o = decode_{inner}(b, o, e); l.append(x)"]
        elif field.kind == "uuid":
            out += [f" {target} = [bytes(b[i:i + 16]) for i in range(o, o + 16 * n, 16)]"]
            out += [" o += 16 * n"]
        elif field.kind in STRUCT_CODES:
            code = STRUCT_CODES[field.kind]
            out += [f" {target} = list(unpack_from('>%d{code}' % n, b, o)) if n else []"]
            out += [f" o += {size} * n"]
        else:
            out += [f" l = {target} = []", " for _ in range(n):"]
            inner_lines = _read_length(field.compact, 2 if field.kind == "string" else 4)
            out += ["  " + line for line in inner_lines]
            out += [f"  if not 0 <= n <= e - o: short({field.name!r}, n, e - o)"]
            out += [f"  l.append({_slice(field.kind)}); o += n"]
        return out

    # -- writing ----------------------------------------------------------------------------

    def writer(self, name: str, layout: StructLayout) -> list[str]:
        out = [f"def encode_{name}(m, a):"]
        for field in layout.absent:
            if not field.spec.ignorable:
                versions = str(field.spec.versions)
                out.append(f" if not ({self.is_default(field)}):")
                out.append(f"  absent({self.bind('spec', field.spec)}, m, {versions!r})")
        for run in _runs(layout.inline):
            if run[0].fixed:
                codec = struct.Struct(">" + "".join(STRUCT_CODES[f.kind] for f in run))
                for field in run:
                    if field.kind == "uuid":
                        out.append(f" if len(m.{field.name}) != 16: wrong_uuid({field.name!r})")
                values = ", ".join(f"m.{f.name}" for f in run)
                out.append(f" a({self.bind('pack', codec.pack)}({values}))")
            else:
                out += [" " + line for line in self.write(run[0], tagged=False)]
        if layout.flexible:
            out += [" " + line for line in self.write_tags(layout.tagged)]
        if len(out) == 1:
            out.append(" pass")
        return out

    def write_tags(self, tagged: list[FieldLayout]) -> list[str]:
        if not tagged:
            return ["a(b'\\0')"]
        out = ["t = []; outer = a"]
        for field in tagged:
            out += [f"if not ({self.is_default(field)}):", " l = []; a = l.append"]
            out += [" " + line for line in self.write(field, tagged=True)]
            out.append(f" l = b''.join(l); t.append(uv({field.spec.tag}) + uv(len(l)) + l)")
        out.append("a = outer; a(uv(len(t)) + b''.join(t) if t else b'\\0')")
        return out

    def write(self, field: FieldLayout, tagged: bool) -> list[str]:
        """Return the lines that write one field of ``m``."""
        value = f"m.{field.name}"
        if field.fixed:
            return [f"a(pack('>{STRUCT_CODES[field.kind]}', {value}))"]
        if field.struct is not None and not field.array:
            plain = f"encode_{self.struct(field.struct)}({value}, a)"
            if not field.nullable:
                return [plain]
            null = "b'\\0'" if tagged else "b'\\xff'"
            return [f"if {value} is None: a({null})", "else:", " a(b'\\1')", f" {plain}"]
        width = 2 if field.kind == "string" and not field.array else 4
        null = "a(b'\\0')" if field.compact else f"a({bytes([255]) * width!r})"
        if not field.nullable:
            null = f"not_null({field.name!r})"
        out = [f"v = {value}", f"if v is None: {null}", "else:"]
        if field.array:
            return out + [" " + line for line in self.write_array(field)]
        if field.kind == "string":
            out += [" " + line for line in _utf8(field)]
        return [*out, " " + _write_length(field.compact, width), " a(v)"]

    def write_array(self, field: FieldLayout) -> list[str]:
        out = [_write_length(field.compact, 4)]
        if field.struct is not None:
            return [*out, f"for x in v: encode_{self.struct(field.struct)}(x, a)"]
        if field.kind == "uuid":
            check = f"if any(len(x) != 16 for x in v): wrong_uuid({field.name!r})"
            return [*out, check, "a(b''.join(v))"]
        if field.kind in STRUCT_CODES:
            return [*out, f"if v: a(pack('>%d{STRUCT_CODES[field.kind]}' % len(v), *v))"]
        out.append("for v in v:")
        if field.kind == "string":
            out += [" " + line for line in _utf8(field)]
        width = 2 if field.kind == "string" else 4
        return [*out, " " + _write_length(field.compact, width), " a(v)"]


def _is_flat(value: Struct) -> bool:
    """Return True if all fields are numbers, text or None, so that their source makes them."""
    return all(
        isinstance(getattr(value, spec.name), int | str | None) for spec in value._fields
    ) and bool(value._fields)


def _runs(fields: list[FieldLayout]) -> list[list[FieldLayout]]:
    """Return runs of adjacent fields of fixed width, and all other fields alone."""
    runs: list[list[FieldLayout]] = []
    for field in fields:
        if field.fixed and runs and runs[-1][0].fixed:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _read_length(compact: bool, width: int) -> list[str]:
    if compact:
        return [
            "n = b[o]; o += 1",
            "if n > 127:",
            " if o < e and b[o] < 128: n += b[o] * 128 - 128; o += 1",
            " else: n, o = read_uvarint(b, o - 1)",
            "n -= 1",
        ]
    return [f"n = i{width}(b, o)[0]; o += {width}"]


def _write_length(compact: bool, width: int) -> str:
    if compact:
        return "n = len(v) + 1; a(u1[n] if n < 128 else uv(n))"
    return f"a(p{width}(len(v)))"


def _utf8(field: FieldLayout) -> list[str]:
    # The old encoding cannot have longer strings. Brokers close on a longer one in the new.
    check = f"if len(v) > {MAX_STRING}: too_long({field.name!r}, len(v))"
    return ["v = v.encode()", *([check] if field.compact else [])]


def _slice(kind: str) -> str:
    return "str(b[o:o + n], 'utf-8')" if kind == "string" else "b[o:o + n]"


@cache
def decoder(message: type[Message], version: int) -> Decode:
    """Return the decoder of a message in a version. Raises ValueError for an unknown version."""
    read: Decode = _Compiler(message, version, reads=True).compile()
    return read


@cache
def encoder(message: type[Message], version: int) -> Encode:
    """Return the encoder of a message in a version. Raises ValueError for an unknown version."""
    write: Encode = _Compiler(message, version, reads=False).compile()
    return write
