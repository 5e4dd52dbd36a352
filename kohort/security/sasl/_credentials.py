"""User names and passwords, from two options or from a callable at each login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from kohort.config import SaslConfig, Secret
from kohort.errors import CredentialsUnavailableError, SecurityError
from kohort.security._calls import CALL_SECONDS, Waiting, call


class Credentials:
    """A user name and its password."""

    __slots__ = ("password", "username")

    def __init__(self, username: str, password: Secret) -> None:
        self.username = username
        self.password = password

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Credentials):
            return NotImplemented
        return self.username == other.username and self.password == other.password

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


class CredentialsSource:
    """Source of the credentials of a login. Each login calls the ``provider``, if there is one."""

    def __init__(self, fixed: Credentials | None, provider: Callable[[], Any] | None) -> None:
        self.waiting = Waiting("sasl_credentials")
        self._fixed = fixed
        self._provider = provider

    @classmethod
    def of(cls, config: SaslConfig) -> CredentialsSource:
        """Return the source that the options describe."""
        name, password = config.sasl_plain_username, config.sasl_plain_password
        fixed = None if name is None or password is None else Credentials(name, password)
        return cls(fixed, config.sasl_credentials)

    async def get(self) -> Credentials:
        """Return the credentials to log in with. Raises SecurityError."""
        if self._provider is None:
            if self._fixed is None:
                raise SecurityError("no credentials: set sasl_plain_username and _password")
            return self._fixed
        with self.waiting.asking():
            return await self._ask(self._provider)

    async def _ask(self, provider: Callable[[], Any]) -> Credentials:
        try:
            return _read(await call(provider))
        except SecurityError:
            raise
        except TimeoutError as error:
            raise CredentialsUnavailableError(
                f"sasl_credentials did not return within {CALL_SECONDS:g} s"
            ) from error
        except Exception as error:
            raise SecurityError(f"sasl_credentials raised {type(error).__name__}") from error

    async def get_other(self, refused: Credentials) -> Credentials | None:
        """Return credentials that differ from the refused ones, or None."""
        if self._provider is None:
            return None
        current = await self.get()
        return None if current == refused else current


def _read(result: Any) -> Credentials:
    """Return what the callable returned as credentials. No value stays in a local variable."""
    match result:
        case (str(), str() | bytes() | Secret()):
            result = _of_pair(*result)
            return result  # type: ignore[no-any-return]
    kind = type(result).__name__
    del result
    raise SecurityError(
        f"sasl_credentials returned {kind}, but kohort expected (user name, password)"
    )


def _of_pair(username: str, password: str | bytes | Secret) -> Credentials:
    return Credentials(username, password if isinstance(password, Secret) else Secret(password))
