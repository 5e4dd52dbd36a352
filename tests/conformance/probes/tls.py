"""Listeners with TLS: other bytes than TLS, versions, and client certificates."""

from __future__ import annotations

import ssl

from kohort.protocol import encode_request
from kohort.protocol.messages import ApiVersionsRequest, CreateDelegationTokenRequest
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.logins import state
from tests.conformance.session import Session
from tests.conformance.wire import Connection, ConnectionClosed

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506)


@probe("7.3a", secured=True)
def bytes_that_are_no_tls(session: Session) -> Observations:
    """Send other bytes to a TLS port, which sends an alert and ends the connection."""
    requests = {
        "ApiVersions 0": (ApiVersionsRequest(), 0),
        "ApiVersions 4": (
            ApiVersionsRequest(client_software_name="p", client_software_version="1"),
            4,
        ),
    }
    for name, (request, version) in requests.items():
        for listener in ("SSL", "SASL_SSL"):
            connection = Connection(session.target.host, session.secured.ports[listener])
            connection.send_bytes(b"".join(encode_request(request, version, 1, "p")))
            yield f"{name} {listener}", connection.receive_some()
            yield f"{name} {listener} afterwards", connection.receive_some()
            connection.close()


@probe("7.3a", secured=True)
def tls_on_listeners_without_it(session: Session) -> Observations:
    """Send a TLS hello to other listeners, which end the connection without a response."""
    for listener in ("PLAINTEXT", "SASL_PLAINTEXT"):
        connection = session.connect_to(listener)
        connection.send_bytes(HELLO)
        yield listener, connection.outcome()


@probe("7.3a", secured=True)
def versions_of_tls(session: Session) -> Observations:
    """Connect with each version of TLS: 1.2 and 1.3 are served."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        yield version.name, state(session.connect_to("SSL", version=version))


def _principal(connection: Connection) -> object:
    """Return the principal of the connection, from a delegation token that it creates."""
    answer = connection.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)
    return answer.error_code, answer.principal_type, answer.principal_name


def _served(
    session: Session, listener: str, certificate: str | None, version: ssl.TLSVersion
) -> object:
    try:
        return _principal(session.connect_to(listener, certificate, version))
    except ssl.SSLError:
        return "an alert"
    except (ConnectionClosed, OSError):
        return "closed"


@probe("7.3b", secured=True)
def client_certificates(session: Session) -> Observations:
    """Connect without a certificate, with foreign and good ones, and read their principals."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for listener in ("SSL", "MTLS"):
            for certificate in (None, "client", "client2", "otherclient"):
                label = f"{version.name} {listener} {certificate}"
                yield label, _served(session, listener, certificate, version)
