"""Security protocols of a secured cluster, and the options that each client needs for them."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from kohort.testing import ClientCertificate, Cluster, Listener, Security, unsecured_token

USER, PASSWORD = "alice", "alice-secret"
LIFE_S = 3600.0
LISTENERS = ("PLAINTEXT", "SSL", Listener("SSL", "MTLS", client_auth="required"), "SASL_SSL")
MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Way:
    """Listener, and a mechanism where it has SASL."""

    listener: str
    mechanism: str = ""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"


WAYS = {
    "TLS": Way("SSL"),
    "mTLS": Way("MTLS"),
    "PLAIN": Way("SASL_SSL", "PLAIN"),
    "SCRAM-SHA-256": Way("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": Way("SASL_SSL", "SCRAM-SHA-512"),
    "OAUTHBEARER": Way("SASL_SSL", "OAUTHBEARER"),
}


def security() -> Security:
    """Return the security settings of the cluster."""
    return Security(LISTENERS, {USER: PASSWORD})


def principal(way: Way, certificate: ClientCertificate) -> str:
    """Return the principal that the brokers see."""
    if way.mechanism:
        return f"User:{USER}"
    return certificate.principal if way.listener == "MTLS" else "User:ANONYMOUS"


@dataclass(frozen=True)
class Entry:
    """Access to a running cluster by a listener and a mechanism."""

    way: Way
    cafile: str
    certificate: ClientCertificate

    @classmethod
    def to(cls, cluster: Cluster, way: Way) -> Entry:
        return cls(way, cluster.ssl_cafile, cluster.client_certificate("app"))

    def confluent(self) -> dict[str, Any]:
        """Return options of librdkafka."""
        options: dict[str, Any] = {
            "security.protocol": self.way.protocol,
            "ssl.ca.location": self.cafile,
        }
        if self.way.listener == "MTLS":
            options["ssl.certificate.location"] = self.certificate.certfile
            options["ssl.key.location"] = self.certificate.keyfile
        if self.way.mechanism:
            options["sasl.mechanism"] = self.way.mechanism
        if self.way.mechanism == "OAUTHBEARER":
            options["oauth_cb"] = lambda _: (unsecured_token(USER, LIFE_S), time.time() + LIFE_S)
        elif self.way.mechanism:
            options |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return options

    def kohort(self) -> dict[str, Any]:
        """Return options of kohort, which are those of kafka-python."""
        return self.kafka_python()

    def kafka_python(self) -> dict[str, Any]:
        """Return options of kafka-python."""
        options: dict[str, Any] = {
            "security_protocol": self.way.protocol,
            "ssl_cafile": self.cafile,
        }
        if self.way.listener == "MTLS":
            options["ssl_certfile"] = self.certificate.certfile
            options["ssl_keyfile"] = self.certificate.keyfile
        return options | self._sasl(_Tokens())

    def aiokafka(self) -> dict[str, Any]:
        """Return options of aiokafka."""
        context = ssl.create_default_context(cafile=self.cafile)
        if self.way.listener == "MTLS":
            context.load_cert_chain(self.certificate.certfile, self.certificate.keyfile)
        options = {"security_protocol": self.way.protocol, "ssl_context": context}
        return options | self._sasl(_AsyncTokens())

    def _sasl(self, tokens: object) -> dict[str, Any]:
        if not self.way.mechanism:
            return {}
        options: dict[str, Any] = {"sasl_mechanism": self.way.mechanism}
        if self.way.mechanism == "OAUTHBEARER":
            return options | {"sasl_oauth_token_provider": tokens}
        return options | {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    def java(self) -> dict[str, Any]:
        """Return options of kafka-clients."""
        options: dict[str, Any] = {
            "security.protocol": self.way.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.cafile,
        }
        if self.way.listener == "MTLS":
            pem, key = Path(self.certificate.certfile), Path(self.certificate.keyfile)
            both = pem.with_suffix(".both")
            both.write_text(key.read_text() + pem.read_text())
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
        if self.way.mechanism:
            options["sasl.mechanism"] = self.way.mechanism
            options["sasl.jaas.config"] = self._jaas()
        return options

    def _jaas(self) -> str:
        if self.way.mechanism == "OAUTHBEARER":
            return (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
                f'unsecuredLoginStringClaim_sub="{USER}";'
            )
        module = "plain.Plain" if self.way.mechanism == "PLAIN" else "scram.Scram"
        return f'{MODULES}.{module}LoginModule required username="{USER}" password="{PASSWORD}";'

    def franz(self) -> tuple[dict[str, object], dict[str, str]]:
        """Return flags of the program of franz-go, and its environment."""
        flags: dict[str, object] = {"cafile": self.cafile}
        if self.way.listener == "MTLS":
            flags |= {"certfile": self.certificate.certfile, "keyfile": self.certificate.keyfile}
        if not self.way.mechanism:
            return flags, {}
        flags |= {"mechanism": self.way.mechanism, "user": USER}
        is_token = self.way.mechanism == "OAUTHBEARER"
        return flags, {"SASL_SECRET": unsecured_token(USER, LIFE_S) if is_token else PASSWORD}


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    """Token provider for kafka-python."""

    def token(self) -> str:
        return unsecured_token(USER, LIFE_S)

    def extensions(self) -> dict[str, str]:
        return {}


class _AsyncTokens(AsyncTokenProvider):  # type: ignore[misc]  # it has no types
    """Token provider for aiokafka."""

    async def token(self) -> str:
        return unsecured_token(USER, LIFE_S)

    def extensions(self) -> dict[str, str]:
        return {}
