"""SecurityConfig: the security protocol with the options of TLS, of logins and of proxies."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from kohort.config.options._option import SecuritySection, option, options_of, section
from kohort.config.security._oauth import AssertionConfig, OAuthConfig, UnsecuredConfig
from kohort.config.security._proxy import ProxyConfig
from kohort.config.security._sasl import SaslConfig
from kohort.config.security._security_types import UpperOneOf
from kohort.config.security._tls import StoreConfig, TlsConfig

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@section
class SecurityConfig(SecuritySection):
    """Options of encrypted connections and of logins."""

    security_protocol: str = field(
        default="PLAINTEXT",
        metadata=option(
            UpperOneOf(*PROTOCOLS),
            "SSL encrypts connections. SASL logs the client in.",
        ),
    )
    tls: TlsConfig = field(default_factory=TlsConfig)
    stores: StoreConfig = field(default_factory=StoreConfig)
    sasl: SaslConfig = field(default_factory=SaslConfig)
    oauth: OAuthConfig = field(default_factory=OAuthConfig)
    assertion: AssertionConfig = field(default_factory=AssertionConfig)
    unsecured: UnsecuredConfig = field(default_factory=UnsecuredConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """True if the client logs in."""
        return self.security_protocol.startswith("SASL_")

    def given(self) -> list[str]:
        """Return the names of the options that do not have their default."""
        sections = (self, *(getattr(self, name) for name in SECURITY_SECTIONS))
        return [
            each.name
            for part in sections
            for each in options_of(type(part))
            if getattr(part, each.name) != each.default
        ]

    def _check_together(self) -> None:
        if self.given():
            # For consumers with security options.
            from kohort.config.security import _security_checks

            for name, replaced in _security_checks.check(self).items():
                self._set(name, replaced)


SECURITY_SECTIONS: Final[dict[str, type[SecuritySection]]] = {
    "tls": TlsConfig,
    "stores": StoreConfig,
    "sasl": SaslConfig,
    "oauth": OAuthConfig,
    "assertion": AssertionConfig,
    "unsecured": UnsecuredConfig,
    "proxy": ProxyConfig,
}
"""The parts of a SecurityConfig by their fields."""
