"""Combinations of security options that cannot work: refused when a consumer is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.config._option import options_of
from kohort.errors import InvalidOptionError

if TYPE_CHECKING:
    from kohort.config._security import SecurityConfig

_HARMLESS_WITHOUT_TLS = {"ssl_check_hostname", "ssl_min_version", "ssl_reload"}
_HARMLESS_WITHOUT_SASL = {"sasl_mechanism", "sasl_kerberos_service_name"}


def check(config: SecurityConfig) -> dict[str, Any]:
    """Return the sections to replace. Raise InvalidOptionError for options that contradict."""
    _check_protocol(config)
    return {}


def _check_protocol(config: SecurityConfig) -> None:
    """Refuse options of TLS or of logins that the protocol has no use for."""
    protocol = config.security_protocol
    tls = {each.name for part in (config.tls, config.stores) for each in options_of(type(part))}
    for name in config.given():
        if name == "security_protocol":
            continue
        if name in tls:
            if config.uses_tls or name in _HARMLESS_WITHOUT_TLS:
                continue
            better = "SASL_SSL" if config.uses_sasl else "SSL"
        else:
            if config.uses_sasl or name in _HARMLESS_WITHOUT_SASL:
                continue
            better = "SASL_SSL"
        raise InvalidOptionError(
            f"{name} is given, but security_protocol is {protocol}: use {better}"
        )
