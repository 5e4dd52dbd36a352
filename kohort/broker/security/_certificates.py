"""Certificates of a test cluster, created in memory by trustme or read from files."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.errors import InvalidOptionError
from kohort.types import NamedTuple

if TYPE_CHECKING:
    import trustme

KINDS = ("valid", "expired", "not_yet_valid", "wrong_host", "revoked", "unknown_ca")
"""Certificates that a broker may show."""
_DAY = datetime.timedelta(days=1)
_LOCAL = ("localhost", "127.0.0.1", "::1")
_CLIENT_HOST = "client.kohort.invalid"
_WRONG_HOST = "other.kohort.invalid"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of a broker: the CA of clients, the certificate chain, and the private key.

    ``password`` is that of an encrypted key.
    """

    cafile: str
    certfile: str
    keyfile: str
    password: str | None = field(default=None, repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the files into a context; InvalidOptionError if that fails."""
        try:
            context.load_cert_chain(self.certfile, self.keyfile, self._password)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidOptionError(
                f"certificates: {self.certfile} and {self.keyfile} cannot be loaded, {reason}"
            ) from error

    def _password(self) -> str:
        if self.password is None:  # OpenSSL would prompt on the terminal
            raise InvalidOptionError(
                "certificates: the private key is encrypted. Give its password"
            )
        return self.password


class ClientCertificate(NamedTuple):
    """PEM files of a client certificate. ``principal`` is the client's name on the brokers."""

    certfile: str
    keyfile: str
    principal: str


class Certificates:
    """Certificates and TLS contexts of one cluster, created at their first use.

    ``hosts`` are the names and addresses of the brokers.
    """

    def __init__(self, hosts: Sequence[str], files: CertificateFiles | None = None) -> None:
        self._hosts = tuple(dict.fromkeys((*hosts, *_LOCAL)))
        self._files = files
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ca: trustme.CA | None = None
        self._other_ca: trustme.CA | None = None
        self._leaves: dict[str, trustme.LeafCert] = {}
        self._contexts: dict[tuple[str, str], ssl.SSLContext] = {}

    def close(self) -> None:
        """Delete the files."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    @property
    def cafile(self) -> str:
        """Path of the CA for clients to trust."""
        if self._files is not None:
            return self._files.cafile
        return self._written("ca.pem", self._authority().cert_pem.bytes())

    @property
    def crlfile(self) -> str:
        """Path of the CRL that revokes the certificate of kind "revoked"."""
        return self._written("ca.crl", _crl(self._authority(), self._leaf("revoked")))

    def client(self, name: str) -> ClientCertificate:
        """Return a new certificate for a client, with the name as its CN."""
        made = self._authority().issue_cert(
            _CLIENT_HOST,  # Java does not read a certificate without any host
            common_name=name,
            organization_name="kohort",
            organization_unit_name="tests",
        )
        chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
        files = [(f"{name}.pem", chain), (f"{name}.key", _pkcs8(made.private_key_pem.bytes()))]
        certfile, keyfile = (self._written(file, data, again=True) for file, data in files)
        return ClientCertificate(certfile, keyfile, f"User:CN={name},OU=tests,O=kohort")

    def renew(self) -> None:
        """Use a new certificate of the same CA from now on."""
        self._leaves.clear()
        self._contexts.clear()

    def context(self, client_auth: str, kind: str = "valid") -> ssl.SSLContext:
        """Return the TLS context of a listener."""
        key = (client_auth, kind)
        if key not in self._contexts:
            self._contexts[key] = self._make_context(client_auth, kind)
        return self._contexts[key]

    def _make_context(self, client_auth: str, kind: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._files is not None and kind == "valid":
            self._files.load_into(context)
        else:
            self._leaf(kind).configure_cert(context)
        if client_auth != "none":
            context.load_verify_locations(self.cafile)
            required = client_auth == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        return context

    def _authority(self) -> trustme.CA:
        if self._files is not None:
            raise InvalidOptionError(
                "certificates: the cluster cannot issue certificates, because it has files"
            )
        if self._ca is None:
            self._ca = _new_ca()
        return self._ca

    def _leaf(self, kind: str) -> trustme.LeafCert:
        if kind not in self._leaves:
            self._leaves[kind] = self._issue(kind)
        return self._leaves[kind]

    def _issue(self, kind: str) -> trustme.LeafCert:
        ca = self._authority()
        now = datetime.datetime.now(datetime.UTC)
        if kind == "wrong_host":
            return ca.issue_cert(_WRONG_HOST)
        if kind == "expired":
            return ca.issue_cert(*self._hosts, not_before=now - 2 * _DAY, not_after=now - _DAY)
        if kind == "not_yet_valid":
            return ca.issue_cert(*self._hosts, not_before=now + _DAY, not_after=now + 2 * _DAY)
        if kind == "unknown_ca":
            self._other_ca = self._other_ca or _new_ca()
            ca = self._other_ca
        return ca.issue_cert(*self._hosts)

    def _written(self, name: str, data: bytes, *, again: bool = False) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="kohort-cluster-")
        path = Path(self._folder.name, name)
        if again or not path.exists():
            # A client may read the file at any time, so the new one replaces it in one step.
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.chmod(0o600)
            part.replace(path)
        return str(path)


def _new_ca() -> trustme.CA:
    try:
        import trustme
    except ImportError:
        raise InvalidOptionError(
            "security: listeners with TLS require trustme, which creates certificates. Run "
            "pip install 'kohort[testing]', give Security files as certificates, or choose other "
            "listeners"
        ) from None
    return trustme.CA()


def _pkcs8(pem: bytes) -> bytes:
    """Return the key in the format that Java also reads."""
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _crl(ca: trustme.CA, revoked: trustme.LeafCert) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    leaf = x509.load_pem_x509_certificate(revoked.cert_chain_pems[0].bytes())
    now = datetime.datetime.now(datetime.UTC)
    entry = (
        x509.RevokedCertificateBuilder()
        .serial_number(leaf.serial_number)
        .revocation_date(now - _DAY)
        .build()
    )
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - _DAY)
        .next_update(now + 30 * _DAY)
        .add_revoked_certificate(entry)
    )
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # trustme's keys can sign
    return signed.public_bytes(serialization.Encoding.PEM)
