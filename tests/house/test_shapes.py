"""Classes with behaviour have few constructor parameters and few attributes."""

from __future__ import annotations

import ast
import collections
import functools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house._source import Module, modules

MAX_PARAMETERS = 8
MAX_ATTRIBUTES = 15

Known = Mapping[str, tuple[int, str]]
"""Class -> its count and the reason for it. The tables may only shrink."""

KNOWN_PARAMETERS: Known = {
    "AIOKafkaConsumer": (39, "aiokafka's own signature, which programs use unchanged"),
}
KNOWN_ATTRIBUTES: Known = {}

VALUE_BASES = {
    "Enum",
    "IntEnum",
    "NamedTuple",
    "Section",
    "SecuritySection",
    "StrEnum",
    "Struct",
    "TypedDict",
}
VALUE_DECORATORS = {"dataclass", "section"}
VALUE_PARTS = ("kohort.errors", "kohort.protocol.messages")
VALUES = {"Columns", "FieldSpec", "RecordDraft"}
"""Values with a written constructor: columns, a field of a message, a record."""


@dataclass(frozen=True)
class Shape:
    """A class of the package, without the bases that it inherits from."""

    name: str
    module: str
    bases: tuple[str, ...]
    decorators: frozenset[str] = frozenset()
    parameters: int = 0
    """Parameters of its constructor, 0 if the constructor is inherited."""
    attributes: frozenset[str] = frozenset()

    @property
    def is_value(self) -> bool:
        """True if the class is declared a value, so that its subclasses are values."""
        return (
            self.name in VALUES
            or bool(self.decorators & VALUE_DECORATORS)
            or any(
                self.module == part or self.module.startswith(f"{part}.") for part in VALUE_PARTS
            )
            or any(
                base in VALUE_BASES or base.endswith(("Error", "Exception")) for base in self.bases
            )
        )


def shapes(module: Module) -> Iterator[Shape]:
    """Yield the classes of a module, also those under ``if`` and ``try``."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield Shape(
                node.name,
                module.name,
                tuple(map(_last_name, node.bases)),
                frozenset(map(_last_name, node.decorator_list)),
                _parameters(node),
                frozenset(_attributes(node)),
            )


def _last_name(node: ast.expr) -> str:
    """Return the name of a base or decorator without its module, arguments and type arguments."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return ast.unparse(node).rpartition(".")[2]


def _parameters(node: ast.ClassDef) -> int:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            of = each.args
            named = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
            return sum(one is not None for one in named) - 1
    return 0


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield names that methods assign to ``self`` and names that the body annotates."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if _last_name(each.annotation) != "ClassVar":
                yield each.target.id
    for found in ast.walk(node):
        if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Store):
            if isinstance(found.value, ast.Name) and found.value.id == "self":
                yield found.attr


def measured(found: Sequence[Shape]) -> dict[str, tuple[int, int]]:
    """Return constructor parameters and attributes, also inherited, of classes with behaviour.

    Classes of one name have the counts of the largest.
    """
    named = collections.defaultdict(list)
    for shape in found:
        named[shape.name].append(shape)
    counts: dict[str, tuple[int, int]] = {}
    for shape in found:
        family = _family(shape, named)
        if "Protocol" not in shape.bases and not any(each.is_value for each in family):
            attributes = frozenset[str]().union(*(each.attributes for each in family))
            parameters, others = counts.get(shape.name, (0, 0))
            counts[shape.name] = max(parameters, shape.parameters), max(others, len(attributes))
    return counts


def _family(shape: Shape, named: Mapping[str, Sequence[Shape]]) -> list[Shape]:
    """Return the class and its ancestors in the package."""
    family = [shape]
    for each in family:
        for base in each.bases:
            if others := [one for one in named.get(base, ()) if one not in family]:
                # A drop-in has a class of the same name elsewhere.
                package = each.module.rpartition(".")[0]
                family.append(max(others, key=lambda one: one.module.startswith(package)))
    return family


def _above(index: int, limit: int) -> dict[str, int]:
    return {name: both[index] for name, both in _package().items() if both[index] > limit}


@functools.cache
def _package() -> dict[str, tuple[int, int]]:
    return measured([shape for module in modules() for shape in shapes(module)])


def _of_source(source: str) -> list[Shape]:
    return [
        *shapes(Module("kohort.example", Path("example.py"), ast.parse(textwrap.dedent(source)), 0))
    ]


def test_parameters_and_attributes_are_counted() -> None:
    found = _of_source(
        """
        class Base:
            shared: ClassVar[int]
            declared: int

            def __init__(self, first, /, second, *third, fourth, **fifth):
                self.first, (self.second, self.third) = first, second
                self.declared: int = 1
                first.other = 1

        class Child(Base, Generic[K]):
            def later(self):
                self.fourth += 1
        """
    )
    assert measured(found) == {"Base": (5, 4), "Child": (0, 5)}


def test_values_have_no_limit() -> None:
    found = _of_source(
        """
        @dataclasses.dataclass(frozen=True)
        class Options: ...

        class Limits(typing.NamedTuple): ...

        class SmallLimits(Limits): ...

        class BrokerError(KafkaError): ...

        class Interface(Protocol):
            declared: int

        class Behaviour(Interface): ...
        """
    )
    assert measured(found) == {"Behaviour": (0, 1)}


def test_classes_have_few_constructor_parameters() -> None:
    known = {name: count for name, (count, _) in KNOWN_PARAMETERS.items()}
    assert _above(0, MAX_PARAMETERS) == known


def test_classes_have_few_attributes() -> None:
    known = {name: count for name, (count, _) in KNOWN_ATTRIBUTES.items()}
    assert _above(1, MAX_ATTRIBUTES) == known
