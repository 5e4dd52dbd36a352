"""Security of a cluster, read from Kafka's ``server.properties``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kohort.broker.security import MECHANISMS, Authorization, CertificateFiles, Listener, Security
from kohort.broker.security._keystores import certificate_files
from kohort.errors import InvalidOptionError
from kohort.types import NamedTuple

_PASSWORD = r"""(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([\w$.-]+))"""
_PLAIN_USER = re.compile(rf"\buser_([^\s=]+)\s*=\s*{_PASSWORD}")
_LISTENER = re.compile(r"\s*(?P<name>\w+)://(?P<host>\[[^\]]*\]|[^:]*):(?P<port>\d+)\s*")
_PREFIX = "listener.name."
_LIFETIME = "connections.max.reauth.ms"
_AUTHORIZER = "authorizer.class.name"
_AUTHORIZERS = ("StandardAuthorizer", "AclAuthorizer")
"""Kafka's authorizers, whose rules are those of the cluster."""
_AUTHORIZER_SETTINGS = ("allow.everyone.if.no.acl.found", "super.users")


class SecuredProperties(NamedTuple):
    """Security that properties describe, None if all clients may do everything on PLAINTEXT.

    ``used``: names of the properties that define it. ``ignored``: names of security properties
    without effect in this cluster.
    """

    security: Security | None
    used: frozenset[str]
    ignored: frozenset[str]


def security_of(
    properties: Mapping[str, str], users: Mapping[str, str], folder: Path
) -> SecuredProperties:
    """Return the security that properties describe.

    ``users``: name -> password, in addition to those of PlainLoginModule. ``folder``: for
    certificates that are not in PEM files. InvalidOptionError for settings that the cluster does
    not support.
    """
    read = _Properties(properties)
    authorization = _authorization(read)
    listeners = _listeners(read)
    security: Security | None = None
    if any(listener.protocol != "PLAINTEXT" for listener in listeners):
        security = Security(
            listeners,
            _plain_users(read) | dict(users),
            certificates=_certificates(read, listeners, folder),
            failed_authentication_delay_ms=read.number("connection.failed.authentication.delay.ms"),
            authorization=authorization,
        )
    elif authorization is not None:
        security = Security(("PLAINTEXT",), authorization=authorization)
        read.used -= {"listeners", "listener.security.protocol.map"}  # the option --port applies
    else:
        read.used.clear()
    prefixed = {name for name in properties if name.startswith(_PREFIX)}
    return SecuredProperties(
        security,
        frozenset(read.used),
        frozenset(prefixed | (properties.keys() & set(_AUTHORIZER_SETTINGS))) - read.used,
    )


class _Properties:
    """Properties, and the names of those that were read."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        self._properties = properties

    def value(self, name: str) -> str | None:
        """Return the value of a property, None if it is not set."""
        if name not in self._properties:
            return None
        self.used.add(name)
        return self._properties[name].strip()

    def listener_value(self, listener: str, name: str, mechanism: str = "") -> str | None:
        """Return the value for a listener and a mechanism, else the one for all."""
        prefix = f"{_PREFIX}{listener.lower()}."
        names = [f"{prefix}{mechanism.lower()}.{name}"] if mechanism else []
        found = [self.value(each) for each in (*names, prefix + name, name)]
        return next((each for each in found if each is not None), None)

    def parts(self, name: str) -> list[str]:
        """Return the parts of a value between commas."""
        return [each.strip() for each in (self.value(name) or "").split(",") if each.strip()]

    def number(self, name: str) -> int:
        """Return a number, 0 if it is not set."""
        return _number(name, self.value(name))

    def values_with_suffix(self, suffix: str) -> list[str]:
        """Return the values of all properties with this suffix, in the order of their names."""
        names = sorted(name for name in self._properties if name.endswith(suffix))
        self.used.update(names)
        return [self._properties[name] for name in names]


def _authorization(read: _Properties) -> Authorization | None:
    name = read.value(_AUTHORIZER)
    if not name:
        return None
    if name.rpartition(".")[2] not in _AUTHORIZERS:
        raise InvalidOptionError(
            f"{_AUTHORIZER}: the cluster does not have {name}. Use StandardAuthorizer"
        )
    users = (read.value("super.users") or "").split(";")
    default = read.value("allow.everyone.if.no.acl.found") or "false"
    return Authorization(
        super_users=tuple(user.strip() for user in users if user.strip()),
        allow_everyone_if_no_acl_found=default.lower() == "true",
    )


def _listeners(read: _Properties) -> list[Listener]:
    pairs = (each.partition(":") for each in read.parts("listener.security.protocol.map"))
    protocols = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    controllers = set(read.parts("controller.listener.names"))
    read.used.discard("controller.listener.names")
    found = []
    for text in read.parts("listeners"):
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise InvalidOptionError(f"listeners: {text!r} is not NAME://HOST:PORT")
        name = match["name"]
        if name not in controllers:
            protocol = protocols.get(name, name).upper()
            found.append(_listener(read, name, protocol, int(match["port"])))
    return found


def _listener(read: _Properties, name: str, protocol: str, port: int) -> Listener:
    if not protocol.endswith("SSL"):
        client_auth, rules = "none", "DEFAULT"
    else:
        client_auth = (read.listener_value(name, "ssl.client.auth") or "none").lower()
        rules = read.listener_value(name, "ssl.principal.mapping.rules") or "DEFAULT"
    if not protocol.startswith("SASL"):
        return Listener(protocol, name, port, client_auth=client_auth, principal_rules=rules)
    listed = read.listener_value(name, "sasl.enabled.mechanisms")
    mechanisms = MECHANISMS if listed is None else [each.strip() for each in listed.split(",")]
    return Listener(
        protocol,
        name,
        port,
        client_auth=client_auth,
        principal_rules=rules,
        mechanisms=mechanisms,
        session_lifetime_ms={
            each: _number(_LIFETIME, read.listener_value(name, _LIFETIME, each))
            for each in mechanisms
        },
    )


def _certificates(
    read: _Properties, listeners: list[Listener], folder: Path
) -> CertificateFiles | None:
    names = [listener.name for listener in listeners if listener.uses_tls]
    for name in names:
        for kind in ("keystore", "truststore"):
            read.listener_value(name, f"ssl.{kind}.type")  # the content of the file shows its type
            read.listener_value(name, f"ssl.{kind}.password")
    for store in ("ssl.keystore.location", "ssl.keystore.key"):
        if len({read.listener_value(name, store) for name in names}) > 1:
            raise InvalidOptionError(
                f"{store}: the listeners {', '.join(names)} have different keystores, but the "
                "cluster has one certificate for all of them. Use one keystore"
            )
    if not names:
        return None
    return certificate_files(lambda setting: read.listener_value(names[0], setting), folder)


def _plain_users(read: _Properties) -> dict[str, str]:
    """Return the users of all entries of PlainLoginModule."""
    return {
        found[1]: re.sub(r"\\(.)", r"\1", found[2] or found[3] or "") or found[4] or ""
        for jaas in read.values_with_suffix("sasl.jaas.config")
        for found in _PLAIN_USER.finditer(jaas)
    }


def _number(name: str, text: str | None) -> int:
    if text is not None and not text.isdecimal():
        raise InvalidOptionError(f"{name}: {text!r} is not a whole number")
    return int(text or 0)
