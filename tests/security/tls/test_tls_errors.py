"""Failed handshakes by OpenSSL's reason and the first bytes of the response."""

from __future__ import annotations

import ssl

import pytest

from kohort.errors import TlsError, WrongListenerError
from kohort.security.tls._tls_errors import TlsAttempt, explain_tls

BROKER = TlsAttempt("b1:9093", "b1")


def failed(reason: str, first_bytes: bytes = b"") -> Exception:
    """Return the typed error of a handshake that fails for this reason."""
    error = ssl.SSLError(1, reason.lower())
    error.reason = reason
    return explain_tls(error, BROKER, first_bytes=first_bytes)


@pytest.mark.cases
@pytest.mark.parametrize(
    "reason",
    [
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",  # OpenSSL 3.2 and later
    ],
)
def test_response_without_tls_is_the_wrong_listener(reason: str) -> None:
    """A response that comes before the first wait was never seen by its bytes."""
    assert isinstance(failed(reason), WrongListenerError)
    assert isinstance(failed(reason, b"HTTP/"), WrongListenerError)


def test_bad_record_of_tls_is_not_the_wrong_listener() -> None:
    error = failed("RECORD_LAYER_FAILURE", b"\x16\x03\x03\x00\x40")
    assert type(error) is TlsError
    assert "the TLS handshake failed: record layer failure" in str(error)
