"""SSL contexts of the client, created from the options and again when their files change."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kohort.config import without_frames
from kohort.errors import InvalidOptionError, KafkaError
from kohort.logs import error_text, get_logger
from kohort.security.tls._certificate import Certificate, read_pem
from kohort.security.tls._pem import (
    check_folder,
    load_authorities,
    load_identity,
    load_revocations,
    read_file,
    read_store,
)

if TYPE_CHECKING:
    from kohort.config import SecurityConfig

logger = get_logger("kohort.security")

SYSTEM = "system"
"""The value of ssl_cafile for the trust store of the operating system (macOS, Windows)."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsContexts:
    """The SSL context for the next connection.

    A context is read-only once a connection uses it, so changed files make another one. An
    ``ssl_context`` given by the user is used as it is.
    """

    def __init__(self, config: SecurityConfig) -> None:
        """Raises InvalidOptionError for files that do not load."""
        self._config = config
        self._given: ssl.SSLContext | None = config.tls.ssl_context
        self._stamp = self._tried = self._look()
        self.certificate: Certificate | None = None
        """The client certificate, or None without one or with a context of the user."""
        self._context = self._given or self._build()

    def current(self) -> ssl.SSLContext:
        """Return the context, from the files as they are now.

        Where changed files do not load, the former context stays, and a warning gives the reason.
        """
        if self._given is None and self._config.tls.ssl_reload:
            stamp = self._look()
            if stamp != self._tried:
                self._tried = stamp
                self._reload(stamp)
        return self._context

    def _reload(self, stamp: Stamp) -> None:
        former = self.certificate
        try:
            self._context = self._build()
        except KafkaError as error:
            self.certificate = former
            logger.warning(
                "changed TLS files do not load, so new connections use the former ones: %s",
                error_text(error),
            )
        else:
            self._stamp = stamp
            logger.info("new connections use the TLS files that changed")

    def for_diagnosis(self, *, verify: bool) -> ssl.SSLContext:
        """Return a context that shows the certificate of a broker that was refused.

        It checks no host name. With ``verify`` it checks the chain. No data may be sent over it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.verify_mode = ssl.CERT_NONE
        if verify:
            context.verify_mode = ssl.CERT_REQUIRED
            if self._given is None:
                self._load_trust(context)
                if self._config.tls.ssl_cafile == SYSTEM:
                    context.load_default_certs()
            else:
                for authority in self._given.get_ca_certs(binary_form=True):
                    context.load_verify_locations(cadata=authority)
                context.load_default_certs()
        return context

    # -- for texts ----------------------------------------------------------------------------

    @property
    def trust(self) -> str:
        """The origin of the trusted CAs, for texts."""
        if self._given is not None:
            return "the CAs of ssl_context"
        config = self._config
        for option, value in (
            ("ssl_cafile", config.tls.ssl_cafile),
            ("ssl_cadata", config.tls.ssl_cadata),
            ("ssl_truststore_location", config.stores.ssl_truststore_location),
        ):
            if value is not None and value != SYSTEM:
                return option
        return "the CAs of the system"

    @property
    def identity(self) -> str | None:
        """The origin of the client certificate for texts, or None."""
        if self._given is not None:
            return "ssl_context"
        config = self._config
        for option, value in (
            ("ssl_certfile", config.tls.ssl_certfile),
            ("ssl_certdata", config.tls.ssl_certdata),
            ("ssl_keystore_location", config.stores.ssl_keystore_location),
        ):
            if value is not None:
                return option
        return None

    def expiry(self) -> tuple[str | None, float | None]:
        """Return the end of the client certificate's validity, and the days until then.

        None if there is no certificate, or where the user gave a context.
        """
        if self.certificate is None:
            return None, None
        end = self.certificate.not_after
        return f"{end:%Y-%m-%d %H:%M} UTC", (end - datetime.now(UTC)) / timedelta(days=1)

    # -- making one ---------------------------------------------------------------------------

    def _build(self) -> ssl.SSLContext:
        """Return a new context.

        Raise InvalidOptionError, whose traceback has no frame with a key or a password.
        """
        try:
            return self._load()
        except InvalidOptionError as error:
            fault = without_frames(error)
        raise fault

    def _load(self) -> ssl.SSLContext:
        tls = self._config.tls
        context = _client_context(system_store=tls.ssl_cafile == SYSTEM)
        context.minimum_version = _VERSIONS[tls.ssl_min_version]
        if tls.ssl_ciphers is not None:
            try:
                context.set_ciphers(tls.ssl_ciphers)
            except ssl.SSLError:
                raise InvalidOptionError(
                    "ssl_ciphers has no cipher that this OpenSSL knows. It takes OpenSSL's names, "
                    "and decides about TLS 1.2 only"
                ) from None
        self._load_trust(context)
        if tls.ssl_crlfile is not None:
            load_revocations(context, "ssl_crlfile", read_file("ssl_crlfile", tls.ssl_crlfile))
        context.check_hostname = tls.ssl_check_hostname
        self._load_identity(context)
        return context

    def _load_trust(self, context: ssl.SSLContext) -> None:
        tls, stores = self._config.tls, self._config.stores
        given = False
        if tls.ssl_cafile is not None and tls.ssl_cafile != SYSTEM:
            given = True
            if os.path.isdir(tls.ssl_cafile):
                check_folder("ssl_cafile", tls.ssl_cafile)
                context.load_verify_locations(capath=tls.ssl_cafile)
            else:
                _trust(context, "ssl_cafile", read_file("ssl_cafile", tls.ssl_cafile))
        if tls.ssl_cadata is not None:
            given = True
            if isinstance(tls.ssl_cadata, bytes):
                _trust_der(context, "ssl_cadata", tls.ssl_cadata)
            else:
                _trust(context, "ssl_cadata", _bytes(tls.ssl_cadata))
        if stores.ssl_truststore_location is not None:
            given = True
            option = "ssl_truststore_location"
            data = read_file(option, stores.ssl_truststore_location)
            if not _is_pem(stores.ssl_truststore_type, data):
                _, data = read_store(option, data, stores.ssl_truststore_password)
            _trust(context, option, data)
        if not given and tls.ssl_cafile != SYSTEM:
            context.load_default_certs()

    def _load_identity(self, context: ssl.SSLContext) -> None:
        tls, stores = self._config.tls, self._config.stores
        password: Any = tls.ssl_password
        key: tuple[str, bytes] | None = None
        if tls.ssl_certfile is not None:
            chain = "ssl_certfile", read_file("ssl_certfile", tls.ssl_certfile)
        elif tls.ssl_certdata is not None:
            chain = "ssl_certdata", _bytes(tls.ssl_certdata)
        elif stores.ssl_keystore_location is not None:
            option = "ssl_keystore_location"
            data = read_file(option, stores.ssl_keystore_location)
            if _is_pem(stores.ssl_keystore_type, data):
                chain = option, data
            else:
                private, data = read_store(option, data, stores.ssl_keystore_password)
                chain, key, password = (option, data), (option, private), None
        else:
            self.certificate = None
            return
        if tls.ssl_keyfile is not None:
            key = "ssl_keyfile", read_file("ssl_keyfile", tls.ssl_keyfile)
        elif tls.ssl_keydata is not None:
            key = "ssl_keydata", _bytes(tls.ssl_keydata)
        load_identity(context, chain, key, password)
        self.certificate = read_pem(chain[1].decode("latin-1"))

    def _look(self) -> Stamp:
        """Return stamps that show if a file was replaced, or None for a missing file."""
        tls, stores = self._config.tls, self._config.stores
        paths: Iterable[str | None] = (
            tls.ssl_cafile,
            tls.ssl_certfile,
            tls.ssl_keyfile,
            tls.ssl_crlfile,
            stores.ssl_keystore_location,
            stores.ssl_truststore_location,
        )
        return tuple(_stamp(path) for path in paths if path is not None and path != SYSTEM)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _client_context(*, system_store: bool = False) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later that checks chain and host name.

    The system's security level stays as it is.
    """
    if system_store:
        context = _system_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _system_context() -> ssl.SSLContext:
    """Return a context that asks the operating system, if the package truststore is installed."""
    try:
        import truststore
    except ImportError:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
        return context
    made: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return made


def _trust(context: ssl.SSLContext, option: str, pem: bytes) -> None:
    load_authorities(context, option, pem)
    # An intermediate CA or a certificate in the file is trusted as it is, as in Java's truststores.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _trust_der(context: ssl.SSLContext, option: str, der: bytes) -> None:
    try:
        context.load_verify_locations(cadata=der)
    except ssl.SSLError:
        raise InvalidOptionError(f"{option} has no certificate in PEM or DER form") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _is_pem(kind: str | None, data: bytes) -> bool:
    return kind == "PEM" or (kind in (None, "JKS") and b"-----BEGIN " in data)


def _bytes(value: Any) -> bytes:
    if hasattr(value, "reveal"):
        value = value.reveal()
    return value.encode() if isinstance(value, str) else bytes(value)


def create_ssl_context(
    *,
    cafile: str | os.PathLike[str] | None = None,
    capath: str | os.PathLike[str] | None = None,
    cadata: str | bytes | None = None,
    certfile: str | os.PathLike[str] | None = None,
    keyfile: str | os.PathLike[str] | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """Return a context for ``ssl_context``. The arguments are those of aiokafka's function.

    The CAs of the system are trusted if no others are given. ``cadata`` is PEM text or bytes in DER
    form. FileNotFoundError for a missing file, and ssl.SSLError for one without a certificate.
    InvalidOptionError for a certificate and key that do not load together.
    """
    for path in (cafile, capath, certfile, keyfile):
        if path is not None and not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    context = _client_context()
    if cafile is None and capath is None and cadata is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(
            None if cafile is None else os.fspath(cafile),
            None if capath is None else os.fspath(capath),
            cadata,
        )
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if certfile is not None:
        chain = "certfile", read_file("certfile", os.fspath(certfile))
        key = None if keyfile is None else ("keyfile", read_file("keyfile", os.fspath(keyfile)))
        load_identity(context, chain, key, password)
    return context
