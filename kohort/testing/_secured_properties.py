"""The security of a cluster as Kafka's ``server.properties`` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.errors import InvalidOptionError
from kohort.testing.security import CertificateFiles, Listener, Security

_PASSWORD = r"""(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([\w$.-]+))"""
_PLAIN_USER = re.compile(rf"\buser_([^\s=]+)\s*=\s*{_PASSWORD}")
_LISTENER = re.compile(r"\s*(?P<name>\w+)://(?P<host>\[[^\]]*\]|[^:]*):(?P<port>\d+)\s*")
_PREFIX = "listener.name."
_TAKEN = frozenset(
    {
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "listener.security.protocol.map",
        "listeners",
        "sasl.enabled.mechanisms",
        "ssl.client.auth",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
_NOT_TAKEN = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)


def security_of(
    properties: Mapping[str, str], users: Mapping[str, str]
) -> tuple[Security | None, frozenset[str]]:
    """Return the security that properties describe, and the names that it is made of.

    None and no names if all listeners are PLAINTEXT. ``users``: name -> password, beside those of
    PlainLoginModule. InvalidOptionError for what the cluster cannot do.
    """
    listeners = _listeners(properties)
    if all(listener.protocol == "PLAINTEXT" for listener in listeners):
        return None, frozenset()
    names = {name for name in properties if name.startswith(_PREFIX)}
    jaas = {name for name in properties if name.endswith("sasl.jaas.config")}
    found = {user: pw for name in sorted(jaas) for user, pw in _plain_users(properties[name])}
    security = Security(
        listeners,
        found | dict(users),
        certificates=_certificates(properties),
        failed_authentication_delay_ms=_number(
            properties, "connection.failed.authentication.delay.ms"
        ),
    )
    return security, frozenset(names | jaas | (_TAKEN & properties.keys()))


def _listeners(properties: Mapping[str, str]) -> list[Listener]:
    pairs = (each.partition(":") for each in _list(properties, "listener.security.protocol.map"))
    protocols = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    controllers = set(_list(properties, "controller.listener.names"))
    found = []
    for text in _list(properties, "listeners"):
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise InvalidOptionError(f"listeners: {text!r} is not NAME://HOST:PORT")
        name = match["name"]
        if name not in controllers:
            protocol = protocols.get(name, name).upper()
            found.append(_listener(properties, name, protocol, int(match["port"])))
    return found


def _listener(properties: Mapping[str, str], name: str, protocol: str, port: int) -> Listener:
    def value(config: str) -> str | None:
        return properties.get(f"{_PREFIX}{name.lower()}.{config}", properties.get(config))

    mechanisms = value("sasl.enabled.mechanisms")
    listed = None if mechanisms is None else [each.strip() for each in mechanisms.split(",")]
    lifetimes = [_number(properties, "connections.max.reauth.ms")]
    lifetimes += [
        _number(properties, each)
        for each in properties
        if each.startswith(f"{_PREFIX}{name.lower()}.") and each.endswith(".max.reauth.ms")
    ]
    return Listener(
        protocol,
        name,
        port,
        client_auth=value("ssl.client.auth") or "none",
        principal_rules=value("ssl.principal.mapping.rules") or "DEFAULT",
        mechanisms=listed,
        session_lifetime_ms=lifetimes[-1],
    )


def _certificates(properties: Mapping[str, str]) -> CertificateFiles | None:
    for name in _NOT_TAKEN:
        if name in properties:
            raise InvalidOptionError(
                f"{name}: the cluster takes plain PEM files, by ssl.keystore.location and "
                "ssl.truststore.location"
            )
    keystore = properties.get("ssl.keystore.location")
    truststore = properties.get("ssl.truststore.location")
    for kind, location in (("keystore", keystore), ("truststore", truststore)):
        if location is not None and properties.get(f"ssl.{kind}.type", "JKS").upper() != "PEM":
            raise InvalidOptionError(f"ssl.{kind}.type: the cluster takes PEM alone")
    if keystore is None:
        return None
    return CertificateFiles(truststore or keystore, keystore, keystore)


def _plain_users(jaas: str) -> list[tuple[str, str]]:
    """Return the users of a JAAS entry of PlainLoginModule."""
    return [
        (found[1], re.sub(r"\\(.)", r"\1", found[2] or found[3] or "") or found[4] or "")
        for found in _PLAIN_USER.finditer(jaas)
    ]


def _list(properties: Mapping[str, str], name: str) -> list[str]:
    return [each.strip() for each in properties.get(name, "").split(",") if each.strip()]


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "0").strip()
    if not text.isdecimal():
        raise InvalidOptionError(f"{name}: {text!r} is not a whole number")
    return int(text)
