"""Apache Kafka with TLS, SASL and ACLs: one node with a listener for each security protocol."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.jars import KAFKA_VERSION
from tests.support.kafka_server import PROPERTIES, KafkaServer, KafkaStartError
from tests.support.kerberos import REALM, SERVICE, Kdc
from tests.support.net import free_ports
from tests.support.tokens import AUDIENCE, ISSUER, SigningKey

USERS = ("admin", "alice", "bob")
"""Users of PLAIN and SCRAM. Their passwords come from password_of(). admin is a super user."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "OAUTH": "SASL_SSL",
    "REAUTH": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
}
"""Security protocol of each listener.

MTLS requires a client certificate, whose CN is the user. SASL_PLAINTEXT, SASL_SSL and REAUTH accept
all mechanisms; their OAUTHBEARER accepts unsecured tokens. OAUTH accepts tokens of ``signing_key``.
Sessions of REAUTH end after ``reauth_ms``. The certificate of EXPIRED expired in 2020. ANONYMOUS,
the user of PLAINTEXT and SSL, is a super user. alice and bob have the rights that ACLs give them.
"""
REAUTH_MS = 4_000
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def password_of(user: str) -> str:
    """Return the password of a user of PLAIN and SCRAM."""
    return f"{user}-secret"


class SecureKafka(KafkaServer):
    """A node with the listeners of :data:`PROTOCOLS`."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        version: str = KAFKA_VERSION,
        reauth_ms: int = REAUTH_MS,
        kdc: Kdc | None = None,
    ) -> None:
        """Set up the node. With ``kdc`` its listeners SASL_PLAINTEXT and SASL_SSL accept GSSAPI."""
        self.certificates = Certificates(folder / "tls")
        self.signing_key = SigningKey()
        self._jwks = folder / "jwks.json"
        self.signing_key.write_jwks(self._jwks)
        self._ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self._version = version
        self._reauth_ms = reauth_ms
        self._kdc = kdc
        super().__init__(jars, folder, properties)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``localhost:port`` of a listener of :data:`PROTOCOLS`."""
        return f"localhost:{self._ports[listener]}"

    def acl(self, *args: str) -> None:
        """Run ``kafka-acls`` with the arguments, such as ``--add --allow-principal User:bob``."""
        self._admin("org.apache.kafka.tools.AclCommand", *args)

    def _admin(self, main_class: str, *args: str) -> None:
        done = self.tool(main_class, "--bootstrap-server", self.bootstrap_servers, *args)
        if done.returncode != 0:
            raise AssertionError(f"{main_class} failed:\n{done.stdout}{done.stderr}")

    def _java(self, main_class: str, *args: object, level: str = "info") -> list[str]:
        program, *rest = super()._java(main_class, *args, level=level)
        options = [f"-D{_ALLOWED_URLS}={self._jwks.as_uri()}"]
        if self._kdc is not None:
            options.append(f"-Djava.security.krb5.conf={self._kdc.config}")
        return [program, *options, *rest]

    def _write_config(self, controller: int) -> None:
        self.port = self._ports["PLAINTEXT"]
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()]
        advertised = [f"{name}://localhost:{port}" for name, port in self._ports.items()]
        protocols = [f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()]
        values = {
            **PROPERTIES,
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
            "log.dirs": str(self._folder / "data"),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            **self._security(),
            **self._extra,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def _security(self) -> dict[str, str]:
        store = self.certificates.path("server.p12")
        values = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "allow.everyone.if.no.acl.found": "false",
            "delegation.token.secret.key": "a-secret-of-tests",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca,
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": str(
                self.certificates.path("expired.p12")
            ),
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **self._oauth(),
        }
        for mechanism in MECHANISMS:
            name = f"listener.name.reauth.{mechanism.lower()}.connections.max.reauth.ms"
            values[name] = str(self._reauth_ms)
        for listener in "sasl_plaintext", "sasl_ssl", "reauth":
            for mechanism, login in _LOGINS.items():
                values[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login
        if self._kdc is not None:
            login = (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                f'storeKey=true keyTab="{self._kdc.service_keytab}" principal="{SERVICE}@{REALM}";'
            )
            for prefix in "listener.name.sasl_plaintext", "listener.name.sasl_ssl":
                values[f"{prefix}.sasl.enabled.mechanisms"] = ",".join([*MECHANISMS, "GSSAPI"])
                values[f"{prefix}.gssapi.sasl.jaas.config"] = login
            values["sasl.kerberos.service.name"] = SERVICE.partition("/")[0]
        return values

    def _oauth(self) -> dict[str, str]:
        package = f"{_OAUTH}.secured" if self._version < "4" else _OAUTH
        prefix = "listener.name.oauth"
        sasl = f"{prefix}.oauthbearer.sasl"
        return {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{sasl}.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{sasl}.server.callback.handler.class": (
                f"{package}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{sasl}.oauthbearer.jwks.endpoint.url": self._jwks.as_uri(),
            f"{sasl}.oauthbearer.expected.audience": AUDIENCE,
            f"{sasl}.oauthbearer.expected.issuer": ISSUER,
        }

    def _format(self) -> None:
        users = [
            argument
            for user in USERS
            for mechanism in SCRAM
            for argument in (
                "--add-scram",
                f"{mechanism}=[name={user},password={password_of(user)}]",
            )
        ]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        done = self.tool(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            str(self._config),
            *users,
        )
        if done.returncode != 0:
            raise KafkaStartError(f"formatting failed:\n{done.stdout}{done.stderr}")


_PLAIN_USERS = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
_LOGINS = {
    "plain": f"org.apache.kafka.common.security.plain.PlainLoginModule required {_PLAIN_USERS};",
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "oauthbearer": f'{_OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="srv";',
}
