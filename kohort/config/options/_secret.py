"""Secret: a password, key or token that is not shown, pickled or copied by accident."""

from __future__ import annotations

from typing import Any, ClassVar, Final, NoReturn, TypeVar, final

E = TypeVar("E", bound=BaseException)

SHOWN: Final = "***"
"""Text that stands for every secret."""

_NOT_PICKLED = (
    "a Secret cannot be pickled or copied. Pass the name of a file or of an environment variable, "
    "and read the secret where it is used"
)


class Secret:
    """A password, key or token. ``repr()``, ``str()`` and ``format()`` show ``***``.

    Two secrets compare in constant time. A secret has no hash, and is never pickled or copied.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str | bytes | Secret) -> None:
        if isinstance(value, Secret):
            value = value.reveal()
        elif isinstance(value, (bytes, bytearray)):
            value = bytes(value).decode("utf-8", "surrogateescape")
        elif not isinstance(value, str):
            given = type(value).__name__
            del value
            raise TypeError(f"a secret is a str or bytes, not {given}")
        self.__value: Final[str] = value

    def reveal(self) -> str:
        """Return the secret as text."""
        return self.__value

    def reveal_bytes(self) -> bytes:
        """Return the secret as bytes. These are the given bytes, or the text in UTF-8."""
        return self.__value.encode("utf-8", "surrogateescape")

    def __bool__(self) -> bool:
        return bool(self.__value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # most consumers compare no secrets

        return hmac.compare_digest(self.reveal_bytes(), other.reveal_bytes())

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return SHOWN

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return SHOWN

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __copy__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise TypeError(_NOT_PICKLED)


@final
class Concealed:
    """A value of a wrong type that may be a secret. Only the name of its type is kept."""

    __slots__ = ("type_name",)

    def __init__(self, value: object) -> None:
        self.type_name: Final = type(value).__name__

    def __repr__(self) -> str:
        return SHOWN


def conceal(value: Any) -> Any:
    """Return the value in a form that no traceback shows. None and callables stay."""
    if value is None or isinstance(value, (Secret, Concealed)) or callable(value):
        return value
    if isinstance(value, (str, bytes, bytearray)):
        return Secret(bytes(value) if isinstance(value, bytearray) else value)
    return Concealed(value)


def without_frames(error: E) -> E:
    """Return the error without its tracebacks, and without those of its causes and contexts.

    Tools that report errors show the local variables of frames, which may be secrets.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            waiting += [each.__cause__, each.__context__]
    return error
