"""Options as fields of sections, with type, default, check, unit and meaning in one place."""

from __future__ import annotations

import dataclasses
import re
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, dataclass_transform

from kohort.config.options._option_types import OptionType, ValueFault
from kohort.config.options._secret import Secret
from kohort.errors import ConfigurationError, InvalidOptionError

_METADATA = "kohort.option"
_USER_INFO = re.compile(r"[^\s'\"/,]+@")
_OPTIONS: dict[type[Any], tuple[Option, ...]] = {}
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


class Option:
    """A supported option. ``properties`` are its dotted names, Java's first."""

    __slots__ = (
        "default",
        "is_security",
        "meaning",
        "name",
        "option_type",
        "properties",
        "shown_default",
        "unit",
    )

    def __init__(
        self,
        *,
        name: str,
        default: Any,
        option_type: OptionType,
        unit: str,
        meaning: str,
        properties: tuple[str, ...],
        shown_default: str,
        is_security: bool = False,
    ) -> None:
        self.name: Final = name
        self.default: Final = default
        self.option_type: Final = option_type
        self.unit: Final = unit
        self.meaning: Final = meaning
        self.properties: Final = properties
        self.shown_default: Final = shown_default
        self.is_security: Final = is_security
        """True if no error repeats a value of the option."""

    def check(self, value: Any) -> Any:
        """Return the value's normal form, or raise InvalidOptionError."""
        return self._checked(value, self.name, self.option_type.check)

    def read(self, value: Any, name: str) -> Any:
        """Return the normal form of a value that was given under a dotted name.

        Text is parsed first. Raises InvalidOptionError.
        """
        if isinstance(value, str):
            return self._checked(
                value,
                name,
                lambda text: self.option_type.check(self.option_type.parse(text.strip())),
            )
        if isinstance(value, Secret):
            value = self.option_type.read_secret(value)
        return self._checked(value, name, self.option_type.check)

    def _checked(self, value: Any, name: str, check: Callable[[Any], Any]) -> Any:
        try:
            return check(value)
        except ConfigurationError:
            raise
        except (TypeError, ValueError) as error:
            raise self.invalid(name, value, self.option_type.expected, error) from None

    def invalid(
        self, name: str, value: Any, expected: str, error: Exception | None = None
    ) -> InvalidOptionError:
        """Return the error for a wrong value. It leaves out the value of a security option."""
        if not self.is_security:
            return invalid(name, value, expected, str(error or ""))
        detail = f" ({error})" if isinstance(error, ValueFault) else ""
        return InvalidOptionError(f"{name}: expected {expected}{detail}")


def invalid(name: str, value: Any, expected: str, detail: str = "") -> InvalidOptionError:
    """Return the error for a wrong value, shortened and without passwords of URLs."""
    shown = _USER_INFO.sub("***@", _REPR.repr(value))
    return InvalidOptionError(
        f"{name}={shown}: expected {expected}" + (f" ({detail})" if detail else "")
    )


def option(
    option_type: OptionType,
    meaning: str,
    *,
    unit: str = "",
    properties: tuple[str, ...] | None = None,
    also: tuple[str, ...] = (),
    shown_default: str = "",
) -> dict[str, Any]:
    """Return the metadata that make a field an option.

    By default its dotted name follows from the name of the field.
    """
    return {_METADATA: (option_type, meaning, unit, properties, also, shown_default)}


def options_of(section: type[Any]) -> tuple[Option, ...]:
    """Return the options that a section declares or inherits, in order."""
    known = _OPTIONS.get(section)
    if known is None:
        known = _OPTIONS[section] = tuple(_options_of(section))
    return known


def _options_of(section: type[Any]) -> Iterator[Option]:
    for field in dataclasses.fields(section):
        if _METADATA not in field.metadata:
            continue
        option_type, meaning, unit, properties, also, shown_default = field.metadata[_METADATA]
        if properties is None:
            properties = (field.name.replace("_", "."),)
        yield Option(
            name=field.name,
            default=field.default,
            option_type=option_type,
            unit=unit,
            meaning=meaning,
            properties=(*properties, *also),
            shown_default=shown_default or _shown(field.default),
            is_security=issubclass(section, SecuritySection),
        )


def _shown(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else str(default)


class Section:
    """Base of the sections. The constructor checks each option, then the options together.

    A section is frozen. All sections share the methods of this class. A dataclass would compile
    methods for each class, which takes longer than the rest of the class.
    """

    passed_names: frozenset[str]
    """Names of the options that the constructor got, also with their default values."""

    def __init__(self, **values: Any) -> None:
        self._set("passed_names", frozenset(values))
        names = set()
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            names.add(field.name)
            if field.name in values:
                self._set(field.name, values[field.name])
            elif field.default_factory is not dataclasses.MISSING:
                self._set(field.name, field.default_factory())
        if unknown := values.keys() - names:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        for each in options_of(type(self)):
            self._set(each.name, each.check(getattr(self, each.name)))
        self._check_together()

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        # A tool that shows the local variables of copy.deepcopy() shows a section without values.
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        shown = ", ".join(f"{name}={getattr(self, name, None)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    def _values(self) -> tuple[Any, ...]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return tuple(getattr(self, field.name) for field in fields)

    def _check_together(self) -> None:
        """Raise InvalidOptionError for values that contradict each other."""

    def _set(self, name: str, value: Any) -> None:
        # A section is frozen, so only its constructor may call this.
        object.__setattr__(self, name, value)


class SecuritySection(Section):
    """Base of the sections of security options. No error and no ``repr`` shows their values."""

    def __init__(self, **values: Any) -> None:
        for each in options_of(type(self)):
            if each.name in values:
                values[each.name] = each.option_type.conceal(values[each.name])
        super().__init__(**values)

    def __repr__(self) -> str:
        opaque = {each.name for each in options_of(type(self)) if each.option_type.is_opaque}
        shown = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name, None)
            hidden = value is not None and (field.name in opaque or callable(value))
            shown.append(f"{field.name}={f'<{type(value).__name__}>' if hidden else repr(value)}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


S = TypeVar("S", bound=Section)


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(dataclasses.field,),
)
def section(cls: type[S]) -> type[S]:
    """Make the annotated names of a class fields. The methods are those of :class:`Section`."""
    collect = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)
    return collect(cls)
