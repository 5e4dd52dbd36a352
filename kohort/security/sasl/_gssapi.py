"""SASL GSSAPI with Kerberos tickets, by the library gssapi (RFC 4752).

All calls of the library may ask the KDC. They run in a worker thread.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any

import anyio

from kohort.config import SaslConfig
from kohort.errors import (
    CredentialsUnavailableError,
    InvalidOptionError,
    SaslServerError,
    SecurityError,
)
from kohort.security._calls import CALL_SECONDS, Waiting, in_thread
from kohort.security._secrets import printable

if TYPE_CHECKING:
    from types import ModuleType

QOP_AUTH = 1
"""Security layer without encryption, the only one that Kafka uses."""
_LAYER_SIZE = 4
"""Bytes of the message about security layers: the layers, and the largest message."""
_numbers = itertools.count(1)
_NO_KDC = -1765328228
"""KRB5_KDC_UNREACH, a minor code of MIT Kerberos."""
_UNKNOWN_SERVICE = -1765328377
"""KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN."""
_MINOR = re.compile(r"Minor \(\d+\): (.+)", re.DOTALL)
_GET_A_TICKET = "Get a ticket with kinit, or set sasl_kerberos_keytab and sasl_kerberos_principal"


class GssapiExchange:
    """A login: the tokens of Kerberos, then one message about the security layer."""

    def __init__(self, context: Any, library: ModuleType, first: bytes, principal: str) -> None:
        self.principal = principal
        self._context = context
        self._library = library
        self._first = first
        self._is_layered = False

    def first(self) -> bytes:
        """Return the AP-REQ."""
        return self._first

    async def next(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None after the broker's last message."""
        if self._is_layered:
            if challenge:
                raise SaslServerError("a GSSAPI login goes on after its last step")
            return None
        step = "answering the broker's Kerberos message"
        answer: bytes = await _run(lambda: self._step(challenge), self._library, step)
        return answer

    def _step(self, challenge: bytes) -> bytes:
        if not self._context.complete:
            return bytes(self._context.step(challenge) or b"")
        layers = self._context.unwrap(challenge).message
        if len(layers) != _LAYER_SIZE or not layers[0] & QOP_AUTH:
            raise SaslServerError("the broker requires a GSSAPI security layer: Kafka has none")
        self._is_layered = True
        # No authorization id after the size: the broker takes the name of the ticket.
        return bytes(self._context.wrap(bytes([QOP_AUTH]) + layers[1:], False).message)

    def is_valid_for(self, seconds: float) -> bool:
        """Return True: the broker decides how long credentials are valid."""
        return True

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the broker's limit."""
        return lifetime_ms / 1000 if lifetime_ms else None

    def shown(self, message: str) -> str:
        """Return the broker's message, escaped, without secrets."""
        return printable(message)

    def refusal(self, message: str) -> str:
        """Return the message, and what to check."""
        return (
            f"{self.shown(message)}. Check that the broker has a keytab for the host that is "
            "connected to, and the clocks"
        )


class GssapiMechanism:
    """GSSAPI for all connections of a client."""

    name = "GSSAPI"

    def __init__(self, config: SaslConfig, library: ModuleType) -> None:
        self._config = config
        self._library = library
        self._waiting = Waiting("the KDC")
        # Caches in memory outlive this object, so their names are not used again.
        self._cache = f"MEMORY:kohort-{next(_numbers)}"

    async def login(self, host: str) -> GssapiExchange:
        """Get a ticket for the broker. Raises SecurityError."""
        step = f"getting a Kerberos ticket for {self._target(host)}"
        with self._waiting.asking(step):
            exchange: GssapiExchange = await _run(lambda: self._begin(host), self._library, step)
        return exchange

    async def login_again(self, refused: object, host: str) -> None:
        """Return None: a new ticket would be refused as well."""

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no ticket comes, or None."""
        return self._waiting.credentials_obstacle(now)

    def _target(self, host: str) -> str:
        config = self._config
        if config.sasl_kerberos_name is not None:
            return printable(str(config.sasl_kerberos_name))
        domain = config.sasl_kerberos_domain_name or host.rstrip(".")
        return printable(f"{config.sasl_kerberos_service_name}@{domain}")

    def _begin(self, host: str) -> GssapiExchange:
        gssapi = self._library
        target = self._config.sasl_kerberos_name
        if target is None:
            target = gssapi.Name(self._target(host), gssapi.NameType.hostbased_service)
        elif isinstance(target, str):
            target = gssapi.Name(target, gssapi.NameType.kerberos_principal)
        credentials = self._credentials()
        context = gssapi.SecurityContext(
            name=target,
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication
            | gssapi.RequirementFlag.out_of_sequence_detection
            | gssapi.RequirementFlag.integrity,
            usage="initiate",
        )
        first = context.step()
        return GssapiExchange(context, gssapi, first or b"", printable(str(credentials.name)))

    def _credentials(self) -> Any:
        """Return the credentials of the options, or those of the default cache."""
        config, gssapi = self._config, self._library
        store = {}
        if config.sasl_kerberos_keytab is not None:
            _check_keytab(config.sasl_kerberos_keytab)
            store["client_keytab"] = config.sasl_kerberos_keytab
            # A ticket of another user in the default cache must not be used.
            store["ccache"] = config.sasl_kerberos_ccache or self._cache
        elif config.sasl_kerberos_ccache is not None:
            store["ccache"] = config.sasl_kerberos_ccache
        name = None
        if config.sasl_kerberos_principal is not None:
            name = gssapi.Name(config.sasl_kerberos_principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage="initiate", store=store or None)


async def _run(function: Any, library: ModuleType, step: str) -> Any:
    """Call a function of the library in a worker thread, with typed errors and a time limit."""
    try:
        with anyio.fail_after(CALL_SECONDS):
            return await in_thread(function)
    except TimeoutError as error:
        raise CredentialsUnavailableError(
            f"{step} took longer than {CALL_SECONDS:g} s: does the KDC respond?"
        ) from error
    except library.exceptions.GSSError as error:
        found = _MINOR.search(str(error))
        text = f"{step} failed: {printable(found[1] if found else str(error))}"
        code = getattr(error, "min_code", 0)
        if _is_code(code, _NO_KDC):
            raise CredentialsUnavailableError(f"{text}. Check that the KDC is up") from error
        if _is_code(code, _UNKNOWN_SERVICE):
            raise SecurityError(
                f"{text}. Check sasl_kerberos_service_name, and that the brokers' addresses are "
                "those of their principals, or set sasl_kerberos_domain_name"
            ) from error
        raise SecurityError(f"{text}. {_GET_A_TICKET}") from error
    except OSError as error:
        raise SecurityError(
            f"{step} failed, because sasl_kerberos_keytab cannot be read: {error.strerror}. "
            f"{_GET_A_TICKET}"
        ) from None


def _is_code(code: int, known: int) -> bool:
    return code & 0xFFFFFFFF == known & 0xFFFFFFFF


def _check_keytab(name: str) -> None:
    """Raise OSError for a keytab that cannot be read. The library would name another reason."""
    path = name.removeprefix("FILE:")
    if os.path.isabs(path):
        with open(path, "rb"):
            pass


def gssapi_mechanism(config: SaslConfig) -> GssapiMechanism:
    """Return GSSAPI. Raises InvalidOptionError without the library gssapi."""
    try:
        import gssapi
    except ImportError:
        raise InvalidOptionError(
            "sasl_mechanism GSSAPI needs the library gssapi: install kohort with the extra gssapi"
        ) from None
    return GssapiMechanism(config, gssapi)
