"""Security state of a running cluster, which requests and tests change."""

from __future__ import annotations

import base64
import random
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from kohort.broker.security._certificates import Certificates
from kohort.broker.security._credentials import CredentialStore
from kohort.broker.security._delegation import DelegationTokens
from kohort.broker.security._listeners import Listener
from kohort.broker.security._mechanism import ServerMechanism
from kohort.broker.security._oauthbearer import OAuthBearerServer
from kohort.broker.security._plain import PlainServer
from kohort.broker.security._principals import apply_rules, distinguished_name
from kohort.broker.security._scram import ScramServer
from kohort.broker.security._settings import Security

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(eq=False, slots=True)
class TlsFault:
    """Fault of TLS connections to a broker, None for all brokers.

    ``kind``: a kind of certificate, or "slow" or "plain". ``seconds``: duration of "slow".
    """

    kind: str
    node: int | None = None
    seconds: float = 0.0
    hits: int = 0
    stopped: anyio.Event = field(default_factory=anyio.Event)


class SecurityState:
    """Credentials, tokens and certificates of one cluster.

    ``hosts`` are those of the brokers. ``now_ms`` returns epoch milliseconds.
    """

    def __init__(
        self, settings: Security, hosts: Sequence[str], seed: int, now_ms: Callable[[], int]
    ) -> None:
        self.settings = settings
        self.credentials: CredentialStore = settings.credentials.copy()
        self.now_ms = now_ms
        self.rng: random.Random = random.Random(f"security {seed}")
        self.delegation: DelegationTokens = DelegationTokens(secrets.token_bytes(32), now_ms)
        self.certificates: Certificates = Certificates(hosts, settings.certificates)
        self._tls_faults: list[TlsFault] = []

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners that every broker has."""
        return self.settings.all_listeners

    def mechanisms(self, listener: Listener) -> list[str]:
        """Return the mechanisms that a listener accepts."""
        given = listener.mechanisms
        return sorted(self.settings.mechanisms if given is None else given)

    def session_lifetime_ms(self, listener: Listener, mechanism: str) -> int:
        """Return the longest session of a login in milliseconds, 0 for no limit."""
        given = listener.session_lifetime_ms
        if isinstance(given, Mapping):
            given = given.get(mechanism)
        return self.settings.session_lifetime_ms if given is None else given

    def begin(self, listener: Listener, mechanism: str) -> ServerMechanism:
        """Return a new exchange of a mechanism that the listener accepts."""
        if mechanism == "PLAIN":
            return PlainServer(self.credentials)
        if mechanism == "OAUTHBEARER":
            check = listener.tokens or self.settings.tokens
            return OAuthBearerServer(check, lambda: self.now_ms() / 1000)
        return ScramServer(mechanism, self.credentials, self.delegation, self._nonce)

    def _nonce(self) -> str:
        """Return 130 random bits in base 36, as Kafka's brokers do."""
        number, digits = self.rng.getrandbits(130), ""
        while number:
            number, digit = divmod(number, 36)
            digits = _BASE36[digit] + digits
        return digits or "0"

    def new_token_id(self) -> str:
        """Return an id for a delegation token: 22 characters, as Kafka writes its ids."""
        raw = self.rng.getrandbits(128).to_bytes(16, "big")
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def certificate_principal(self, listener: Listener, subject: Sequence[object]) -> str | None:
        """Return the principal of a client certificate, None if no mapping rule matches."""
        name = apply_rules(listener.principal_rules, distinguished_name(subject))
        return None if name is None else f"User:{name}"

    # TLS

    def add_tls_fault(self, fault: TlsFault) -> None:
        """Apply a fault to connections from now on. The latest fault has precedence."""
        self._tls_faults.append(fault)

    def stop_tls_fault(self, fault: TlsFault) -> None:
        """End a fault, and release the handshakes that it delays."""
        fault.stopped.set()
        if fault in self._tls_faults:
            self._tls_faults.remove(fault)

    def stop_tls_faults(self) -> None:
        """End all TLS faults."""
        for fault in tuple(self._tls_faults):
            self.stop_tls_fault(fault)

    def tls_fault(self, node_id: int) -> TlsFault | None:
        """Return the fault for the next TLS connection to a broker, None if there is none."""
        for fault in reversed(self._tls_faults):
            if fault.node in (None, node_id):
                fault.hits += 1
                return fault
        return None

    def context(self, listener: Listener, fault: TlsFault | None) -> ssl.SSLContext:
        """Return the TLS context for a new connection."""
        kind = "valid" if fault is None or fault.kind in ("slow", "plain") else fault.kind
        return self.certificates.context(listener.client_auth, kind)
