"""Security settings of a cluster, as a test gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from kohort.broker.security._acls import Acl
from kohort.broker.security._authorizer import Authorizer
from kohort.broker.security._certificates import CertificateFiles
from kohort.broker.security._credentials import CredentialStore
from kohort.broker.security._listeners import (
    MECHANISMS,
    PROTOCOLS,
    Listener,
    TokenCheck,
    check_mechanisms,
)
from kohort.broker.security._tokens import check_unsecured
from kohort.errors import InvalidOptionError


@dataclass(frozen=True)
class Authorization:
    """Rights of clients, decided by the rules of Kafka's ``StandardAuthorizer``.

    ``acls``: ACLs at the start. Operations that they do not allow are refused.
    ``super_users``: principals such as ``"User:admin"`` that may do everything.
    ``allow_everyone_if_no_acl_found`` allows operations on resources without any ACL.
    """

    acls: Sequence[Acl] = ()
    super_users: Sequence[str] = ()
    allow_everyone_if_no_acl_found: bool = False

    def __post_init__(self) -> None:
        for user in self.super_users:
            if ":" not in user:
                raise InvalidOptionError(
                    f"super_users: {user!r} is no principal. Use 'User:{user}'"
                )

    def make_authorizer(self) -> Authorizer:
        """Return a new authorizer."""
        return Authorizer(
            self.acls,
            self.super_users,
            allow_everyone_if_no_acl_found=self.allow_everyone_if_no_acl_found,
        )


@dataclass(frozen=True)
class Security:
    """Listeners and users of a cluster: ``Cluster(security=Security(...))``.

    ``listeners`` are protocols or :class:`Listener` objects. ``cluster.bootstrap_servers`` has the
    addresses of the first one. ``users`` maps names to passwords for PLAIN and SCRAM. The cluster
    stores only keys that are derived from the passwords.

    ``tokens``: check of OAUTHBEARER tokens, ``(token, now) -> (user, expiry)`` in epoch seconds.
    The default accepts unsecured tokens. ``certificates`` are files; without them the cluster
    creates certificates in memory.

    ``session_lifetime_ms`` is Kafka's ``connections.max.reauth.ms``. 0 sets no limit.
    ``failed_authentication_delay_ms`` delays the response to a failed login; Kafka's default is
    100.

    ``authorization``: rights of the clients. None lets every client do everything.
    """

    listeners: Sequence[Listener | str] = PROTOCOLS
    users: InitVar[Mapping[str, str] | None] = None
    mechanisms: Sequence[str] = MECHANISMS
    tokens: TokenCheck = check_unsecured
    certificates: CertificateFiles | None = None
    session_lifetime_ms: int = 0
    failed_authentication_delay_ms: int = 0
    authorization: Authorization | None = None
    credentials: CredentialStore = field(init=False, repr=False, compare=False)

    def __post_init__(self, users: Mapping[str, str] | None) -> None:
        given = [self.listeners] if isinstance(self.listeners, str) else self.listeners
        listeners = tuple(Listener(each) if isinstance(each, str) else each for each in given)
        names = [listener.name for listener in listeners]
        if not names or len(set(names)) != len(names):
            raise InvalidOptionError(
                f"listeners={names!r}: give at least one, each with another name"
            )
        check_mechanisms(self.mechanisms)
        if self.session_lifetime_ms < 0 or self.failed_authentication_delay_ms < 0:
            raise InvalidOptionError("session_lifetime_ms and the delay must be 0 or more")
        object.__setattr__(self, "listeners", listeners)
        object.__setattr__(self, "credentials", CredentialStore(users))

    def make_authorizer(self) -> Authorizer | None:
        """Return a new authorizer; None if every client may do everything."""
        return None if self.authorization is None else self.authorization.make_authorizer()

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        """The listeners, each as an object."""
        return tuple(each for each in self.listeners if isinstance(each, Listener))


PLAINTEXT_ONLY = Security(listeners=("PLAINTEXT",))
"""Default security of a cluster."""
