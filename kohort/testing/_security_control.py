"""Methods for tests of a secured cluster: addresses, users, certificates, faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.requests._faults import Call, Outcome, api_keys
from kohort.broker.security import KINDS, ClientCertificate, TlsFault
from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.testing._fault_control import Fault, FaultControl

_WRONG_PASSWORD = "Authentication failed: Invalid username or password"
_SIGNATURE = re.compile(rb"v=.")
_FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "signature": lambda token: _SIGNATURE.sub(
        lambda found: b"v=B" if found[0] == b"v=A" else b"v=A", token
    ),
    "no_signature": lambda token: b"" if token.startswith(b"v=") else token,
    "iterations": lambda token: re.sub(rb",i=\d+$", b",i=1", token),
    "many_iterations": lambda token: re.sub(rb",i=\d+$", b",i=100000000", token),
    "nonce": lambda token: re.sub(rb"^r=[^,]*", b"r=another", token),
    "salt": lambda token: re.sub(rb",s=[^,]*", b",s=*", token),
}


class SecurityControl(FaultControl):
    """Methods of a cluster for TLS and logins."""

    _has_certificates = True
    """True if the cluster creates certificates; False if connections only raise the errors
    of TLS.
    """

    # Addresses and files for clients

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses of a listener, by its name, such as ``"SASL_SSL"``.

        InvalidOptionError if there is no such listener.
        """
        return self._call(partial(_addresses, listener))

    @property
    def bootstrap_servers(self) -> str:
        """The first listener's addresses of all brokers, as ``"127.0.0.1:40001,127.0.0.1:40002"``.

        Stopped brokers are included.
        """
        return self._call(lambda server: _addresses(server.state.config.listeners[0].name, server))

    @property
    def ssl_cafile(self) -> str:
        """Path of the PEM file of the CA for clients to trust. It is deleted with the cluster."""
        return self._call(lambda server: server.state.security.certificates.cafile)

    @property
    def ssl_crlfile(self) -> str:
        """Path of a PEM file: the CRL that revokes the certificate of ``"revoked"``."""
        return self._call(lambda server: server.state.security.certificates.crlfile)

    def client_certificate(self, name: str) -> ClientCertificate:
        """Return a new certificate for clients, with the name as its CN.

        The paths are the same for each call with one name, so a call also renews a certificate.
        """
        return self._call(lambda server: server.state.security.certificates.client(name))

    def renew_certificates(self) -> None:
        """Use new certificates of the same CA for new connections."""
        self._call(lambda server: server.state.security.certificates.renew())

    # Users

    def set_password(self, user: str, password: str) -> None:
        """Add a user of PLAIN and SCRAM, or change the password. Existing sessions continue."""
        self._call(lambda server: server.state.security.credentials.set_password(user, password))

    def remove_user(self, user: str) -> None:
        """Remove a user of PLAIN and SCRAM. Existing sessions continue."""
        self._call(lambda server: server.state.security.credentials.remove(user))

    # Faults

    def fail_login(
        self,
        message: str = _WRONG_PASSWORD,
        *,
        after: int = 0,
        times: int | None = 1,
        node: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Fail ``times`` logins with SASL_AUTHENTICATION_FAILED, after the first ``after`` ones."""
        if after < 0:
            raise InvalidOptionError(f"after={after}: must be 0 or more")
        seen = 0

        def refuse(call: Call) -> Outcome:
            nonlocal seen
            if call.login_steps > 0:  # a later step of a login that was not refused
                return None
            seen += 1
            if seen <= after:
                return None
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
            )

        keys = frozenset([SaslAuthenticateRequest.api_key])
        return self._add_rule(refuse, keys, node=node, client_id=client_id, remaining=times)

    def forge_scram(
        self, how: str = "signature", *, times: int | None = None, node: int | None = None
    ) -> Fault:
        """Forge the brokers' messages of SCRAM. A client has to refuse them.

        ``how`` names the wrong part:

        - "signature", "no_signature": the broker does not prove that it knows the password
        - "iterations", "many_iterations": the number of iterations is 1 or 100 million
        - "nonce": it does not begin with the client's nonce
        - "salt": it is not base64
        """
        if how not in _FORGERIES:
            raise InvalidOptionError(f"how={how!r}: choose one of {', '.join(_FORGERIES)}")
        forge = _FORGERIES[how]

        async def forge_response(call: Call) -> Outcome:
            response = await call.proceed()
            assert isinstance(response, SaslAuthenticateResponse)
            response.auth_bytes = forge(bytes(response.auth_bytes))
            return response

        return self._add_rule(
            forge_response, api_keys("SaslAuthenticate"), node=node, remaining=times
        )

    def serve_certificate(self, kind: str, *, node: int | None = None) -> Fault:
        """Show another certificate on new TLS connections.

        ``kind`` is "expired", "not_yet_valid", "wrong_host", "revoked" (by ``ssl_crlfile``) or
        "unknown_ca".
        """
        if kind not in KINDS:
            raise InvalidOptionError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
        return self._add_tls(TlsFault(kind, node))

    def slow_handshake(self, seconds: float = float("inf"), *, node: int | None = None) -> Fault:
        """Delay the broker's first byte on new TLS connections, at most until the fault is
        stopped.
        """
        if not seconds >= 0:
            raise InvalidOptionError(f"seconds={seconds}: must be 0 or more")
        return self._add_tls(TlsFault("slow", node, seconds))

    def answer_plainly(self, *, node: int | None = None) -> Fault:
        """Send bytes that are not TLS to new TLS connections."""
        return self._add_tls(TlsFault("plain", node))

    def stop_faults(self) -> None:
        """End all faults except damage to records."""
        super().stop_faults()
        self._call(lambda server: server.state.security.stop_tls_faults())

    def _add_tls(self, fault: TlsFault) -> Fault:
        def add(server: ClusterServer) -> None:
            self._check_node(server, fault.node)
            if not any(listener.uses_tls for listener in server.state.config.listeners):
                raise InvalidOptionError("the cluster has no listener with TLS")
            if fault.kind in KINDS and self._has_certificates:  # errors are raised here
                for listener in server.state.config.listeners:
                    server.state.security.context(listener, fault)
            server.state.security.add_tls_fault(fault)

        self._call(add)
        return Fault(
            lambda: self._call(lambda server: server.state.security.stop_tls_fault(fault)),
            lambda: fault.hits,
        )


def _addresses(listener: str, server: ClusterServer) -> str:
    names = [each.name for each in server.state.config.listeners]
    if listener not in names:
        raise InvalidOptionError(f"listener={listener!r}: choose one of {', '.join(names)}")
    return ",".join(
        f"[{node.host}]:{node.ports[listener]}"
        if ":" in node.host
        else f"{node.host}:{node.ports[listener]}"
        for node in server.state.all_nodes
    )
