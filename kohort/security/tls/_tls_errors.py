"""Failures of TLS as typed errors that name the option to change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kohort.errors import (
    TlsClientCertificateError,
    TlsError,
    TlsVerificationError,
    WrongListenerError,
)
from kohort.security._secrets import printable
from kohort.security.tls._certificate import Certificate

SHOWN_NAMES = 5
NAME_MISMATCHES = frozenset({62, 64})
"""OpenSSL's verify codes for a host name and for an IP address."""
UNKNOWN_ISSUERS = frozenset({2, 18, 19, 20, 21})
_TLS_RECORD_TYPES = range(0x14, 0x18)
NOT_TLS = (
    "the response is not TLS. If it is a PLAINTEXT or SASL_PLAINTEXT listener, set "
    "security_protocol to that, or use the port of a TLS listener"
)


@dataclass(frozen=True, slots=True)
class TlsAttempt:
    """Settings of one TLS connection, for the texts of its errors.

    ``peer`` is ``host:port`` for texts, ``host`` the name that the certificate has to contain.
    ``trust`` and ``identity`` name where the CAs and the client certificate come from, None
    without one.
    """

    peer: str
    host: str
    trust: str = "the CAs of the system"
    identity: str | None = None


def explain_tls(
    error: OSError | ValueError,
    attempt: TlsAttempt,
    *,
    certificate: Certificate | None = None,
    first_bytes: bytes = b"",
) -> TlsError | WrongListenerError:
    """Return the typed error for a failed handshake.

    ``certificate`` is the broker's, as far as it could be had; ``first_bytes`` begin its answer.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error, attempt, certificate)
    if first_bytes and first_bytes[0] not in _TLS_RECORD_TYPES:
        return WrongListenerError(f"{attempt.peer}: {NOT_TLS}")
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if reason in _NO_TLS and not first_bytes:
        return WrongListenerError(f"{attempt.peer}: {NOT_TLS}")
    if refused := explain_refusal(error, attempt):
        return refused
    if reason in _NO_VERSION:
        text = (
            "client and broker have no TLS version in common: check ssl_min_version and the "
            "ssl.enabled.protocols of the broker"
        )
    elif reason in _NO_CIPHER:
        text = (
            "the broker refused the handshake: there is no cipher in common (check ssl_ciphers), "
            "or the broker requires a client certificate (set ssl_certfile and ssl_keyfile)"
        )
    elif reason in ("TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNRECOGNIZED_NAME"):
        text = f"the broker has no certificate for {printable(attempt.host)}: check the address"
    else:
        text = f"the TLS handshake failed: {describe(error)}"
    return TlsError(f"{attempt.peer}: {text}")


def explain_refusal(
    error: OSError | ValueError, attempt: TlsAttempt
) -> TlsClientCertificateError | None:
    """Return the typed error for an alert about the client certificate, or None."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason not in _CLIENT_CERTIFICATE:
        return None
    if attempt.identity is None:
        text = (
            "the broker requires a client certificate, and none is set. Set ssl_certfile and "
            "ssl_keyfile"
        )
    else:
        text = (
            f"the broker refused the client certificate of {attempt.identity}: "
            f"{_CLIENT_CERTIFICATE[reason]}"
        )
    return TlsClientCertificateError(f"{attempt.peer}: {text}")


def describe(error: OSError | ValueError) -> str:
    """Return OpenSSL's reason in words, without numbers and places of its source."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__)


_NO_TLS = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",  # in place of the others, from OpenSSL 3.2 on
    }
)
_NO_VERSION = frozenset(
    {
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_SSL_VERSION",
        "WRONG_VERSION_NUMBER",
        "NO_PROTOCOLS_AVAILABLE",
    }
)
_NO_CIPHER = frozenset(
    {
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "SSL/TLS_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_INSUFFICIENT_SECURITY",
        "NO_CIPHERS_AVAILABLE",
        "WRONG_CIPHER_RETURNED",
    }
)
_NOT_TRUSTED = "the broker does not trust its CA. Use a certificate of a CA in its truststore"
_NOT_ACCEPTED = (
    "the broker does not accept it. Check its CA, its dates and its extended key usage (clientAuth)"
)
_CLIENT_CERTIFICATE = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was sent that the broker accepts. Check its CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": _NOT_ACCEPTED,
    "SSL/TLS_ALERT_BAD_CERTIFICATE": _NOT_ACCEPTED,
    "SSLV3_ALERT_NO_CERTIFICATE": _NOT_ACCEPTED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _NOT_ACCEPTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NOT_TRUSTED,
    "SSL/TLS_ALERT_CERTIFICATE_UNKNOWN": _NOT_TRUSTED,
    "TLSV1_ALERT_UNKNOWN_CA": _NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it expired. Renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked. Use another one",
    "TLSV1_ALERT_ACCESS_DENIED": _NOT_ACCEPTED,
    "TLSV1_ALERT_DECRYPT_ERROR": _NOT_ACCEPTED,
}


def _verification(
    error: ssl.SSLCertVerificationError, attempt: TlsAttempt, certificate: Certificate | None
) -> TlsVerificationError:
    code = error.verify_code
    explain = _BY_CODE.get(code)
    if code in UNKNOWN_ISSUERS:
        explain = _unknown_issuer
    if explain is not None:
        text = explain(attempt, certificate)
    else:
        text = f"the broker's certificate is not accepted: {printable(error.verify_message)}"
    return TlsVerificationError(f"{attempt.peer}: {text}")


def _unknown_issuer(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    if certificate is None:
        signed = "the broker's certificate is signed by a CA"
    elif certificate.issuer == certificate.subject:
        signed = f"the broker's certificate ({printable(certificate.subject)}) is self-signed"
        return f"{signed} and is not in {attempt.trust}. Set ssl_cafile to that certificate"
    else:
        issuer = printable(certificate.issuer) or "a CA without a name"
        signed = f"the broker's certificate is signed by {issuer}"
    return (
        f"{signed}, which is not in {attempt.trust}. Set ssl_cafile to the certificate of that "
        "CA. An intermediate CA must be sent by the broker"
    )


def _wrong_name(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    host = printable(attempt.host)
    if certificate is None:
        names = "other names"
    else:
        shown = ", ".join(map(printable, certificate.names[:SHOWN_NAMES]))
        more = len(certificate.names) - SHOWN_NAMES
        names = f"{shown} and {more} more" if more > 0 else shown or "no host at all"
    return (
        f"the broker's certificate is for {names}, not for {host}. Use one of these names as the "
        f"address, or have {host} added to the certificate"
    )


def _expired(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    when = _on(None if certificate is None else certificate.not_after)
    return f"the broker's certificate expired{when}. It must be renewed on the broker"


def _not_yet_valid(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    when = _on(None if certificate is None else certificate.not_before, " before ")
    return f"the broker's certificate is not valid{when or ' yet'}. Check the clock of this machine"


def _revoked(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    return "the broker's certificate is revoked by the CRL in ssl_crlfile. Replace it on the broker"


def _no_crl(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    issuer = "its issuer" if certificate is None else printable(certificate.issuer)
    return (
        f"the broker's certificate cannot be checked for revocation: ssl_crlfile has no CRL of "
        f"{issuer}"
    )


def _old_crl(attempt: TlsAttempt, certificate: Certificate | None) -> str:
    return "the CRL in ssl_crlfile is not valid now. Replace it by a current one"


def _on(when: datetime | None, word: str = " on ") -> str:
    return "" if when is None else f"{word}{when:%Y-%m-%d %H:%M} UTC"


_BY_CODE: dict[int, Callable[[TlsAttempt, Certificate | None], str]] = {
    62: _wrong_name,
    64: _wrong_name,
    10: _expired,
    9: _not_yet_valid,
    23: _revoked,
    3: _no_crl,
    11: _old_crl,
    12: _old_crl,
}
