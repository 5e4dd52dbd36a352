"""Security of the client's connections: TLS contexts, SASL mechanisms, OAuth tokens."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.types import lazy_names

__all__ = [
    "NAME_MISMATCHES",
    "Certificate",
    "LoginExchange",
    "Mechanism",
    "TlsAttempt",
    "TlsContexts",
    "create_ssl_context",
    "describe",
    "explain_refusal",
    "explain_tls",
    "mechanism_of",
    "read_der",
]

if TYPE_CHECKING:
    from kohort.security.sasl._mechanisms import LoginExchange, Mechanism, mechanism_of
    from kohort.security.tls._certificate import Certificate, read_der
    from kohort.security.tls._context import TlsContexts, create_ssl_context
    from kohort.security.tls._tls_errors import (
        NAME_MISMATCHES,
        TlsAttempt,
        describe,
        explain_refusal,
        explain_tls,
    )
else:
    # Consumers of PLAINTEXT listeners do not need the module ssl.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Certificate": "kohort.security.tls._certificate",
            "read_der": "kohort.security.tls._certificate",
            "TlsContexts": "kohort.security.tls._context",
            "create_ssl_context": "kohort.security.tls._context",
            "LoginExchange": "kohort.security.sasl._mechanisms",
            "Mechanism": "kohort.security.sasl._mechanisms",
            "mechanism_of": "kohort.security.sasl._mechanisms",
            "NAME_MISMATCHES": "kohort.security.tls._tls_errors",
            "TlsAttempt": "kohort.security.tls._tls_errors",
            "describe": "kohort.security.tls._tls_errors",
            "explain_refusal": "kohort.security.tls._tls_errors",
            "explain_tls": "kohort.security.tls._tls_errors",
        }.get,
    )
