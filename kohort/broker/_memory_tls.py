"""TLS errors for connections in memory, which raise what a handshake would raise."""

from __future__ import annotations

import ssl

import anyio

from kohort.broker._broker import Broker
from kohort.broker.security import ANONYMOUS, Listener

_REFUSED = {
    "expired": (10, "certificate has expired"),
    "not_yet_valid": (9, "certificate is not yet valid"),
    "wrong_host": (62, "Hostname mismatch, certificate is not valid for 'kohort.invalid'."),
    "revoked": (23, "certificate revoked"),
    "unknown_ca": (20, "unable to get local issuer certificate"),
}
"""OpenSSL's verify code and message for each kind of certificate that clients refuse."""


async def check_tls(broker: Broker, listener: Listener, certificate: str) -> str:
    """Return the principal of the client; ssl.SSLError if a fault or the listener refuses it."""
    if not listener.uses_tls:
        return ANONYMOUS
    security = broker.cluster.security
    fault = security.tls_fault(broker.node.id)
    if fault is not None and fault.kind == "slow":
        with anyio.move_on_after(fault.seconds):
            await fault.stopped.wait()
    elif fault is not None and fault.kind == "plain":
        raise _ssl_error("WRONG_VERSION_NUMBER", "wrong version number")
    elif fault is not None and fault.kind in _REFUSED:
        raise _verification_error(*_REFUSED[fault.kind])
    if listener.client_auth == "required" and not certificate:
        raise _ssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED", "tlsv13 alert certificate required")
    if listener.client_auth == "none" or not certificate:
        return ANONYMOUS
    subject = (
        (("organizationName", "kohort"),),
        (("organizationalUnitName", "tests"),),
        (("commonName", certificate),),
    )
    principal = security.certificate_principal(listener, subject)
    if principal is None:
        raise ConnectionResetError("no rule maps the principal of the certificate")
    return principal


def _verification_error(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(
        1, f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {message}"
    )
    error.library, error.reason = "SSL", "CERTIFICATE_VERIFY_FAILED"
    error.verify_code, error.verify_message = code, message
    return error


def _ssl_error(reason: str, text: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {text}")
    error.library, error.reason = "SSL", reason
    return error
