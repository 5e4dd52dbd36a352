"""Section of the options of logins (SASL)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Final

from kohort.config.options._option import SecuritySection, option, section
from kohort.config.options._option_types import Boolean
from kohort.config.options._secret import Secret
from kohort.config.security._security_types import (
    FilePath,
    Opaque,
    OpaqueFunction,
    SecretText,
    SingleLine,
    TokenProviderOption,
    UpperOneOf,
)

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?", re.I)


def msk_region_of(servers: Iterable[tuple[str, int]]) -> str | None:
    """Return the region of a broker's address or of the environment, or None."""
    for host, _ in servers:
        if found := _MSK_HOST.search(host):
            return found[1].lower()
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


@section
class SaslConfig(SecuritySection):
    """Options of a login: its mechanism, and the credentials of PLAIN, SCRAM and Kerberos."""

    sasl_mechanism: str | None = field(
        default=None,
        metadata=option(
            UpperOneOf(*MECHANISMS, nullable=True),
            "Mechanism of the login. Required if security_protocol is SASL_PLAINTEXT or SASL_SSL.",
            also=("sasl.mechanisms",),
        ),
    )
    sasl_plain_username: str | None = field(
        default=None,
        metadata=option(
            SingleLine(), "The user of PLAIN and SCRAM.", properties=("sasl.username",)
        ),
    )
    sasl_plain_password: Secret | None = field(
        default=None,
        metadata=option(
            SecretText(stripped=False),
            "The password of PLAIN and SCRAM.",
            properties=("sasl.password",),
        ),
    )
    sasl_credentials: Callable[[], Any] | None = field(
        default=None,
        metadata=option(
            OpaqueFunction("a callable, sync or async, that returns (user, password)"),
            "Returns the user and password of PLAIN and SCRAM. Each login calls it, so a password "
            "may change without a restart.",
            properties=(),
        ),
    )
    sasl_delegation_token: bool = field(
        default=False,
        metadata=option(
            Boolean(),
            "With SCRAM, the user is the id of a delegation token, the password its HMAC.",
        ),
    )
    sasl_oauth_token_provider: Any = field(
        default=None,
        metadata=option(
            TokenProviderOption(),
            "The source of tokens for OAUTHBEARER. It returns the token, a pair of token and "
            "expiry, or an object with token and expires_at. An expiry is a datetime, or in "
            "seconds since 1970.",
            properties=(),
        ),
    )
    sasl_kerberos_service_name: str = field(
        default="kafka",
        metadata=option(SingleLine(nullable=False), "The first part of the brokers' principal."),
    )
    sasl_kerberos_domain_name: str | None = field(
        default=None,
        metadata=option(
            SingleLine(), "The host in the brokers' principal. None: the host of the connection."
        ),
    )
    sasl_kerberos_name: Any = field(
        default=None,
        metadata=option(
            Opaque("a str, or a gssapi.Name"),
            "The whole principal of the brokers, in place of the service and domain name.",
            properties=(),
        ),
    )
    sasl_kerberos_principal: str | None = field(
        default=None,
        metadata=option(
            SingleLine(),
            "The principal of this client. None: the first one of the keytab or cache.",
        ),
    )
    sasl_kerberos_keytab: str | None = field(
        default=None,
        metadata=option(FilePath(), "Keytab to log in with. None: the credential cache."),
    )
    sasl_kerberos_ccache: str | None = field(
        default=None,
        metadata=option(
            SingleLine(), "Credential cache to log in with. None: the default one of Kerberos."
        ),
    )
