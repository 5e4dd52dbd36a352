"""Layout of a message in one version, which is its fields with their resolved types."""

from __future__ import annotations

import inspect
import sys
import types
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from kohort.protocol._struct import FieldSpec, Message, Struct
from kohort.protocol._types import STRUCT_CODES
from kohort.types import NamedTuple


class FieldLayout(NamedTuple):
    """One field in one version.

    ``kind`` is a name of :data:`~kohort.protocol._types.STRUCT_CODES`, ``string``, ``bytes``,
    ``records``, or ``struct``. In the last case ``struct`` is its class.
    """

    spec: FieldSpec
    kind: str
    array: bool
    struct: type[Struct] | None
    nullable: bool
    compact: bool

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def fixed(self) -> bool:
        return not self.array and self.kind in STRUCT_CODES


class StructLayout(NamedTuple):
    """One structure in one version, with its fields in line, by tag, and the absent ones."""

    inline: list[FieldLayout]
    tagged: list[FieldLayout]
    absent: list[FieldLayout]
    flexible: bool


def _type_of(hint: Any) -> tuple[str, bool, type[Struct] | None]:
    """Return a resolved annotation as kind, array flag, and class of a structure."""
    if get_origin(hint) is types.UnionType or type(hint).__name__ == "_UnionGenericAlias":
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is list:
        kind, _, struct = _type_of(get_args(hint)[0])
        return kind, True, struct
    if get_origin(hint) is Annotated:
        return get_args(hint)[1], False, None
    if isinstance(hint, type) and issubclass(hint, Struct):
        return "struct", False, hint
    raise TypeError(f"not a type of the protocol: {hint!r}")


_TYPES: dict[str, dict[str, tuple[str, bool, type[Struct] | None]]] = {}
"""Evaluated annotations by module, because evaluation takes longer than a look-up."""


@cache
def _types_of(struct: type[Struct]) -> dict[str, tuple[str, bool, type[Struct] | None]]:
    """Return the type of each field, as _type_of() has it."""
    module = vars(sys.modules[struct.__module__])
    texts = _TYPES.setdefault(struct.__module__, {})
    found = {}
    for name, text in inspect.get_annotations(struct).items():
        known = texts.get(text)
        if known is None:
            known = _type_of(eval(text, module, dict(vars(struct))))
            if (
                known[2] is None
            ):  # the name of a structure may have another meaning in another class
                texts[text] = known
        found[name] = known
    return found


def struct_layout(message: type[Message], struct: type[Struct], version: int) -> StructLayout:
    """Return the layout of ``struct``, a part of ``message``, in ``version``."""
    types_ = _types_of(struct)
    flexible = version in message.flexible
    inline: list[FieldLayout] = []
    tagged: list[FieldLayout] = []
    absent: list[FieldLayout] = []
    for spec in struct._fields:
        kind, array, inner = types_[spec.name]
        compact = flexible and spec.flexible
        layout = FieldLayout(spec, kind, array, inner, version in spec.nullable, compact)
        if version not in spec.versions:
            absent.append(layout)
        elif flexible and spec.tag is not None and version in spec.tagged:
            tagged.append(layout)
        else:
            inline.append(layout)
    tagged.sort(key=lambda layout: layout.spec.tag or 0)
    return StructLayout(inline, tagged, absent, flexible)
