"""Listeners of brokers: security protocols and what each of them requires of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kohort.broker.security._principals import check_rules
from kohort.errors import InvalidOptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_CLIENT_AUTH = ("none", "requested", "required")

TokenCheck = Callable[[str, float], tuple[str, float]]
"""Check of an OAUTHBEARER token: ``(token, now) -> (user, expiry)``, times in epoch seconds.

It raises ValueError for a token that it refuses.
"""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener that every broker has.

    ``protocol``: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. ``name``: the protocol by default.
    ``port`` is that of the first broker, and each other broker adds its index. 0 chooses free
    ports. ``client_auth`` is Kafka's ``ssl.client.auth``: "none", "requested" or "required".
    ``principal_rules`` is Kafka's ``ssl.principal.mapping.rules``.

    ``mechanisms``, ``session_lifetime_ms`` and ``tokens`` override those of :class:`Security`. The
    lifetime may be a mapping from mechanisms.
    """

    protocol: str = "PLAINTEXT"
    name: str = ""
    port: int = 0
    client_auth: str = "none"
    principal_rules: str = "DEFAULT"
    mechanisms: Sequence[str] | None = None
    session_lifetime_ms: int | Mapping[str, int] | None = None
    tokens: TokenCheck | None = None

    def __post_init__(self) -> None:
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("client_auth", self.client_auth, _CLIENT_AUTH)
        check_mechanisms(self.mechanisms or ())
        check_rules(self.principal_rules)
        if not self.name:
            object.__setattr__(self, "name", self.protocol)

    @property
    def uses_tls(self) -> bool:
        """True for SSL and SASL_SSL."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """True for SASL_PLAINTEXT and SASL_SSL."""
        return self.protocol.startswith("SASL")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise InvalidOptionError for a value that is none of the choices."""
    if value not in choices:
        raise InvalidOptionError(f"{name}={value!r}: choose one of {', '.join(choices)}")


def check_mechanisms(names: Sequence[str]) -> None:
    """Raise InvalidOptionError for a mechanism that the cluster does not have."""
    for name in names:
        check_choice("mechanisms", name, MECHANISMS)
