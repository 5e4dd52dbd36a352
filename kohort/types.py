"""Values that kohort passes to its users and takes from them. They are immutable and hashable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

__all__ = [
    "ConsumerGroupMetadata",
    "MetricSample",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceCause",
    "RebalanceContext",
    "SubscriptionPattern",
    "TopicPartition",
]

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter

    class _NamedTupleType(type):
        """Metaclass of NamedTuple, which turns the annotations of a class into fields."""

        def __new__(
            mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
        ) -> _NamedTupleType:
            namespace.setdefault("__slots__", ())
            cls = super().__new__(mcs, name, bases, namespace)
            if bases[0] is not tuple and not bases[0]._fields:
                cls._fields = cls.__match_args__ = fields = tuple(cls.__annotations__)
                cls._field_defaults = {
                    name: namespace[name] for name in fields if name in namespace
                }
                cls._last_defaults = tuple(cls._field_defaults.values())
                for index, name in enumerate(fields):
                    setattr(cls, name, _tuplegetter(index, f"Field {index}"))
            return cls

        @property
        def __signature__(cls) -> Any:
            from inspect import Parameter, Signature  # for tools that show a signature

            kind, default_of = Parameter.POSITIONAL_OR_KEYWORD, cls._field_defaults.get
            return Signature(
                [
                    Parameter(
                        name, kind, default=default_of(name, Parameter.empty), annotation=annotation
                    )
                    for name, annotation in cls.__annotations__.items()
                ]
            )

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """Base of named tuples, as that of ``typing``.

        That one compiles code for each class and each field, which takes 0.1 ms and more.
        """

        _fields = ()

        def __new__(cls, *values: Any, **named: Any) -> Any:
            if named or len(values) != len(cls._fields):
                missing = len(cls._fields) - len(values)
                if named or not 0 < missing <= len(cls._last_defaults):
                    values = cls._complete(values, named)
                else:
                    values += cls._last_defaults[-missing:]
            return tuple.__new__(cls, values)

        @classmethod
        def _complete(cls, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
            """Return a value for each field. Raise TypeError as a call of a function does."""
            given = dict(zip(cls._fields, values, strict=False))
            found = {**cls._field_defaults, **given, **named}
            is_wrong = len(values) > len(cls._fields) or not given.keys().isdisjoint(named)
            if is_wrong or found.keys() != set(cls._fields):
                raise TypeError(
                    f"{cls.__name__}({', '.join(cls._fields)}) got {len(values)} values and the "
                    f"names {list(named)}"
                )
            return [found[name] for name in cls._fields]

        @classmethod
        def _make(cls, values: Any) -> Any:
            return cls(*values)

        def _replace(self, /, **changes: Any) -> Any:
            take = changes.pop
            values = [take(name, value) for name, value in zip(self._fields, self, strict=True)]
            return type(self)(*values, **changes)  # a name that is left is unknown

        __replace__ = _replace  # for copy.replace()

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)


class TopicPartition(NamedTuple):
    """Partition of a topic, as a named tuple like in kafka-python and aiokafka."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """Committed offset of a partition.

    ``offset`` is the next offset to read. ``metadata`` is free text of at most 4,096 bytes.
    ``leader_epoch`` is that of the last record read, or -1 if unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """First offset at or after a timestamp, which is in milliseconds since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


RebalanceCause: TypeAlias = Literal[
    "subscribed",
    "group_changed",
    "topics_changed",
    "requested",
    "unsubscribed",
    "closed",
    "removed",
    "fenced",
    "poll_overdue",
    "failed",
]
"""Cause of a rebalance. docs/listeners.md describes each one."""


class RebalanceContext(NamedTuple):
    """Cause and deadline of a rebalance, for a method of a listener with a parameter ``rebalance``.

    ``deadline`` is the time until which the group waits for the method. The clock is
    ``time.monotonic()``. On trio it is ``trio.current_time()``. For lost partitions, the deadline
    is past.
    """

    cause: RebalanceCause
    reason: str
    """Text for a log, as in ``explain()``."""
    deadline: float


class MetricSample(NamedTuple):
    """Figure of a consumer with its labels, from ``metric_samples()``."""

    name: str
    """Name of the figure, as in ``metrics()``."""
    labels: dict[str, str]
    value: float


class SubscriptionPattern(NamedTuple):
    """Regular expression of topic names that the brokers evaluate, in the syntax of RE2J.

    It matches whole names. A group needs the consumer protocol for it (KIP-848), while a compiled
    pattern of Python is evaluated by the consumer itself and needs nothing.
    """

    pattern: str


class ConsumerGroupMetadata(NamedTuple):
    """Membership of a consumer in its group (KIP-447). The defaults stand for no membership."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = "<unjoined>"


for _value in (
    TopicPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    ConsumerGroupMetadata,
    MetricSample,
):
    _value.__module__ = "kohort"  # pickles and tracebacks have the public name


def escaped(text: str) -> str:
    """Return the text with control characters escaped, so that it cannot forge a log line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class LazyModule:
    """Placeholder of a module in annotations. :func:`typing.get_type_hints` imports the module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_names(
    package: str, module_of: Callable[[str], str | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports names late (PEP 562).

    ``module_of`` returns the module of such a name, and None for any other name.
    """
    namespace = vars(sys.modules[package])

    def find(name: str) -> Any:
        module = module_of(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = namespace[name] = getattr(import_module(module), name)
        return found

    def names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]})

    return find, names
