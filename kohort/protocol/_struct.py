"""Message classes and their fields.

A message is one class for all its versions. The class statement only collects the fields. The
second instance compiles the constructor. The first message of a version that is read or written
compiles a codec (:mod:`kohort.protocol._compile`). So importing a message costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from kohort.types import NamedTuple

LATEST = 1 << 15
"""Number above every version, for the end of an open range."""


class VersionRange(NamedTuple):
    """First and last version, both inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSION = VersionRange(1, 0)


@cache
def version_range(text: str) -> VersionRange:
    """Return the range of a text such as ``"4-18"``, ``"12+"``, ``"3"`` or ``"none"``."""
    if text == "none":
        return NO_VERSION
    # A regular expression would take 0.2 ms of each start to compile.
    is_open = text.endswith("+")
    first, dash, last = text.removesuffix("+").partition("-")
    if not first.isdecimal() or (is_open and dash) or (dash and not last.isdecimal()):
        raise ValueError(f"not a range of versions: {text!r}")
    return VersionRange(int(first), LATEST if is_open else int(last or first))


class FieldSpec:
    """Declaration of a field in a class body."""

    __slots__ = (
        "default",
        "default_factory",
        "flexible",
        "ignorable",
        "name",
        "nullable",
        "secret",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        versions: VersionRange,
        nullable: VersionRange,
        tag: int | None,
        tagged: VersionRange,
        default: Any,
        default_factory: Callable[[], Any] | None,
        ignorable: bool,
        flexible: bool,
        secret: bool = False,
    ) -> None:
        self.name = ""
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.default = default
        self.default_factory = default_factory
        self.ignorable = ignorable
        self.flexible = flexible
        self.secret = secret

    def shown(self, value: object) -> str:
        """Return the value as text. A secret shows its size at most."""
        if not self.secret or value is None:
            return repr(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"<{len(value)} bytes>"
        return "'***'"

    def make_default(self) -> Any:
        return self.default if self.default_factory is None else self.default_factory()


def field(
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    default: Any = None,
    default_factory: Callable[[], Any] | None = None,
    ignorable: bool = False,
    flexible: bool = True,
    secret: bool = False,
) -> Any:
    """Declare a field with the versions that have it, allow null in it, or carry it as tagged.

    - ``ignorable`` drops a value other than the default in a version without the field. Otherwise
      such a value is an error.
    - ``flexible=False`` keeps the old encoding in flexible versions. Only the client id of the
      request header needs it.
    - ``secret`` makes ``repr`` and errors show the size of the value and not the value.
    """
    on = version_range(versions)
    return FieldSpec(
        on,
        version_range(nullable),
        tag,
        NO_VERSION if tag is None else version_range(tagged) if tagged else on,
        default,
        default_factory,
        ignorable,
        flexible,
        secret,
    )


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Metaclass that turns the field declarations of a class body into slots."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructMeta:
        specs = {key: spec for key, spec in namespace.items() if isinstance(spec, FieldSpec)}
        for key, spec in specs.items():
            spec.name = key
            del namespace[key]
        namespace.setdefault("__slots__", tuple(specs))
        cls = super().__new__(mcs, name, bases, namespace, **options)
        vars_ = tuple(specs.values())
        type.__setattr__(cls, "_fields", vars_)
        inner = (each for each in namespace.values() if isinstance(each, StructMeta))
        has_secrets = any(spec.secret for spec in vars_) or any(
            getattr(each, "_has_secrets", False) for each in inner
        )
        type.__setattr__(cls, "_has_secrets", has_secrets)
        return cls


def _make_init(cls: type[Struct]) -> Callable[..., None]:
    """Return a constructor with a keyword and a default for each field."""
    env: dict[str, Any] = {}
    parameters, body = [], []
    for spec in cls._fields:
        name = spec.name
        if spec.default_factory is None:
            env[f"default_{name}"] = spec.default
            parameters.append(f"{name}=default_{name}")
            body.append(f" self.{name} = {name}")
        else:
            env[f"make_{name}"] = spec.default_factory
            parameters.append(f"{name}=MISSING")
            body.append(f" self.{name} = make_{name}() if {name} is MISSING else {name}")
    env["MISSING"] = object()
    star = "*, " if parameters else ""
    exec(
        f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(body or [" pass"]), env
    )
    init: Callable[..., None] = env["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


_MADE_ONCE: set[type[Struct]] = set()
"""Classes with one instance, which was created without a compiled constructor."""


class Struct(metaclass=StructMeta):
    """A group of fields: a message, or a structure inside one. Compares by value."""

    __slots__ = ()
    _fields: ClassVar[tuple[FieldSpec, ...]]
    _has_secrets: ClassVar[bool]
    """True if a field of this class, or of a structure inside it, is secret."""
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # mutable, which object hides

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        if cls in _MADE_ONCE or not values.keys() <= {spec.name for spec in cls._fields}:
            cls.__init__ = _make_init(cls)  # type: ignore[method-assign]  # made once
            cls.__init__(self, **values)
            return
        # A client creates most messages only once, and compiling takes longer than this loop.
        _MADE_ONCE.add(cls)
        for spec in cls._fields:
            name = spec.name
            setattr(self, name, values[name] if name in values else spec.make_default())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, spec.name) == getattr(other, spec.name) for spec in self._fields
        )

    def __repr__(self) -> str:
        # A traceback may show a message during decoding, when some fields are missing.
        fields = (spec for spec in self._fields if hasattr(self, spec.name))
        shown = (f"{spec.name}={spec.shown(getattr(self, spec.name))}" for spec in fields)
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Message(Struct):
    """A structure with versions, which :func:`kohort.protocol.encode` takes."""

    __slots__ = ()

    api_key: ClassVar[int] = -1
    versions: ClassVar[VersionRange] = NO_VERSION
    flexible: ClassVar[VersionRange] = NO_VERSION

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str | None = None, flexible: str = "none"
    ) -> None:
        super().__init_subclass__()
        if versions is not None:
            cls.api_key = api_key
            cls.versions = version_range(versions)
            cls.flexible = version_range(flexible)


class Response(Message):
    """Base of the responses."""

    __slots__ = ()


ResponseT = TypeVar("ResponseT", bound=Response, covariant=True)


class Request(Message, Generic[ResponseT]):
    """Base of the requests. Its type parameter is the class of the response."""

    __slots__ = ()

    response: ClassVar[type[Response]]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str | None = None, flexible: str = "none"
    ) -> None:
        super().__init_subclass__(api_key=api_key, versions=versions, flexible=flexible)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in getattr(base, "__args__", ()):
                if isinstance(argument, type) and issubclass(argument, Response):
                    cls.response = argument
