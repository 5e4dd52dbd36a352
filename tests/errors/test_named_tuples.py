"""kohort's named tuples behave as those of ``typing``, which take far longer to create."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from kohort.types import NamedTuple, OffsetAndMetadata, TopicPartition

T = TypeVar("T")


class Ours(NamedTuple):
    """A point."""

    x: int
    y: str = "y"
    z: list[int] | None = None
    """A field with a docstring."""

    @property
    def double(self) -> int:
        return 2 * self.x


class Theirs(typing.NamedTuple):
    """A point."""

    x: int
    y: str = "y"
    z: list[int] | None = None

    @property
    def double(self) -> int:
        return 2 * self.x


class Heir(Ours):
    """A subclass without fields."""

    __slots__ = ()


class Boxed(NamedTuple, Generic[T]):
    """A generic one."""

    value: T


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs, Heir])


@BOTH
def test_named_tuple_has_the_values_of_its_fields(kind: Any) -> None:
    point = kind(1, z=[3])
    assert (point.x, point.y, point.z, point.double) == (1, "y", [3], 2)
    assert point == (1, "y", [3]) == kind(x=1, y="y", z=[3]) == kind._make([1, "y", [3]])
    assert kind._fields == kind.__match_args__ == ("x", "y", "z")
    assert kind._field_defaults == {"y": "y", "z": None}
    assert point._asdict() == {"x": 1, "y": "y", "z": [3]}
    assert type(point._replace(x=5)) is kind
    assert point._replace(x=5) == (5, "y", [3])
    assert repr(point) == f"{kind.__name__}(x=1, y='y', z=[3])"
    assert hash(kind(1)) == hash((1, "y", None))
    match point:
        case kind(x, "y", z=rest):
            assert (x, rest) == (1, [3])
        case _:
            pytest.fail("no match")


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda kind: kind(),
        lambda kind: kind(1, "y", None, 4),
        lambda kind: kind(1, x=1),
        lambda kind: kind(1, w=1),
        lambda kind: kind(y="y"),
        lambda kind: kind._make([1, 2, 3, 4]),
    ],
)
def test_named_tuple_raises_for_wrong_arguments(call: Callable[[Any], Any], kind: Any) -> None:
    with pytest.raises(TypeError):
        call(kind)


@BOTH
def test_named_tuple_is_frozen_and_has_no_dict(kind: Any) -> None:
    point = kind(1)
    for name in ("x", "other"):
        with pytest.raises(AttributeError):
            setattr(point, name, 2)
    assert not hasattr(point, "__dict__")


@BOTH
def test_named_tuple_is_copied_and_pickled(kind: Any) -> None:
    point = kind(1, "b", [3])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(point, protocol))
        assert (again, type(again)) == (point, kind)
    assert type(copy.copy(point)) is type(copy.deepcopy(point)) is kind
    assert copy.deepcopy(point) == point


def test_named_tuple_may_be_generic() -> None:
    assert Boxed[int](5).value == Boxed(5).value == 5


def test_named_tuple_shows_its_signature() -> None:
    expected = "(offset: 'int', metadata: 'str' = '', leader_epoch: 'int' = -1)"
    assert str(inspect.signature(OffsetAndMetadata)) == expected
    assert typing.get_type_hints(TopicPartition) == {"topic": str, "partition": int}
