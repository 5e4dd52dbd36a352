"""Sections of the options of TLS: certificates, keys, stores and CAs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from kohort.config.options._option import SecuritySection, option, section
from kohort.config.options._option_types import Boolean
from kohort.config.options._secret import Secret
from kohort.config.security._security_types import (
    HOSTNAME_WORDS,
    SYSTEM_CA,
    CertificateList,
    Ciphers,
    FilePath,
    KeyPassword,
    KeyText,
    SecretText,
    SslContext,
    TlsVersion,
    UpperOneOf,
)

if TYPE_CHECKING:
    import ssl


@section
class TlsConfig(SecuritySection):
    """Options of TLS connections to brokers."""

    ssl_context: ssl.SSLContext | None = field(
        default=None,
        metadata=option(
            SslContext(),
            "A context that is used unchanged. No other ssl_ option may be given with it.",
            properties=(),
        ),
    )
    ssl_cafile: str | None = field(
        default=None,
        metadata=option(
            FilePath(SYSTEM_CA),
            "PEM file, or folder, of the CA certificates of the brokers. None means those of the "
            "system.",
            properties=("ssl.ca.location",),
        ),
    )
    ssl_cadata: str | bytes | None = field(
        default=None,
        metadata=option(
            CertificateList(der=True),
            "The CA certificates themselves, in place of ssl_cafile.",
            properties=("ssl.truststore.certificates", "ssl.ca.pem"),
        ),
    )
    ssl_certfile: str | None = field(
        default=None,
        metadata=option(
            FilePath(),
            "PEM file of the client certificate and its chain. It may hold the private key.",
            properties=("ssl.certificate.location",),
        ),
    )
    ssl_keyfile: str | None = field(
        default=None,
        metadata=option(
            FilePath(),
            "PEM file of the private key. None: the key is in ssl_certfile.",
            properties=("ssl.key.location",),
        ),
    )
    ssl_password: Secret | Callable[[], str | bytes] | None = field(
        default=None,
        metadata=option(
            KeyPassword(),
            "Password of the private key.",
            properties=("ssl.key.password",),
        ),
    )
    ssl_certdata: str | None = field(
        default=None,
        metadata=option(
            CertificateList(),
            "The client certificate and its chain, in place of ssl_certfile.",
            properties=("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        ),
    )
    ssl_keydata: Secret | None = field(
        default=None,
        metadata=option(
            KeyText(),
            "The private key, in place of ssl_keyfile.",
            properties=("ssl.keystore.key", "ssl.key.pem"),
        ),
    )
    ssl_crlfile: str | None = field(
        default=None,
        metadata=option(
            FilePath(),
            "PEM file of revoked certificates (CRL). A broker's certificate in it is refused.",
            properties=("ssl.crl.location",),
        ),
    )
    ssl_ciphers: str | None = field(
        default=None,
        metadata=option(
            Ciphers(),
            "Cipher suites of TLS 1.2, by their names in OpenSSL or Java. Those of TLS 1.3 cannot "
            "be chosen.",
            properties=("ssl.cipher.suites",),
        ),
    )
    ssl_check_hostname: bool = field(
        default=True,
        metadata=option(
            Boolean(HOSTNAME_WORDS),
            "Compare the address of a broker with its certificate. False leaves the other checks.",
            properties=("ssl.endpoint.identification.algorithm",),
        ),
    )
    ssl_min_version: str = field(
        default="TLSv1.2",
        metadata=option(
            TlsVersion(),
            "The lowest version of TLS that is used.",
            properties=("ssl.enabled.protocols",),
        ),
    )
    ssl_reload: bool = field(
        default=True,
        metadata=option(Boolean(), "Reload changed certificate files at the next connection."),
    )

    def key_password(self) -> Secret | None:
        """Return the password of the private key. Call the option if it is a callable."""
        password = self.ssl_password
        if password is None or isinstance(password, Secret):
            return password
        return Secret(password())


@section
class StoreConfig(SecuritySection):
    """Java's stores. Stores of the type PEM become options of TlsConfig."""

    ssl_keystore_location: str | None = field(
        default=None,
        metadata=option(
            FilePath(),
            "PKCS#12 file of the client certificate and its private key (needs the extra crypto).",
        ),
    )
    ssl_keystore_password: Secret | None = field(
        default=None, metadata=option(SecretText(), "Password of ssl_keystore_location.")
    )
    ssl_keystore_type: str | None = field(
        default=None,
        metadata=option(
            UpperOneOf("PEM", "PKCS12", "JKS", nullable=True),
            "Type of ssl_keystore_location. None, or JKS: detected from the file.",
        ),
    )
    ssl_truststore_location: str | None = field(
        default=None,
        metadata=option(
            FilePath(), "PKCS#12 file of CA certificates (needs the extra crypto), or a PEM file."
        ),
    )
    ssl_truststore_password: Secret | None = field(
        default=None, metadata=option(SecretText(), "Password of ssl_truststore_location.")
    )
    ssl_truststore_type: str | None = field(
        default=None,
        metadata=option(
            UpperOneOf("PEM", "PKCS12", "JKS", nullable=True),
            "Type of ssl_truststore_location. None, or JKS: detected from the file.",
        ),
    )
