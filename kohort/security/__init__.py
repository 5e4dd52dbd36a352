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
    from kohort.security._certificate import Certificate, read_der
    from kohort.security._context import TlsContexts, create_ssl_context
    from kohort.security._mechanisms import LoginExchange, Mechanism, mechanism_of
    from kohort.security._tls_errors import (
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
            "Certificate": "kohort.security._certificate",
            "read_der": "kohort.security._certificate",
            "TlsContexts": "kohort.security._context",
            "create_ssl_context": "kohort.security._context",
            "LoginExchange": "kohort.security._mechanisms",
            "Mechanism": "kohort.security._mechanisms",
            "mechanism_of": "kohort.security._mechanisms",
            "NAME_MISMATCHES": "kohort.security._tls_errors",
            "TlsAttempt": "kohort.security._tls_errors",
            "describe": "kohort.security._tls_errors",
            "explain_refusal": "kohort.security._tls_errors",
            "explain_tls": "kohort.security._tls_errors",
        }.get,
    )
