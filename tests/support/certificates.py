"""Certificates for tests: a CA, good and bad server certificates, client certificates, a CRL.

All are created in memory with keys for this run alone, and written into one folder::

    ca.pem                the CA to trust; ca.crl revokes "revoked"
    NAME.pem, NAME.key    certificate with its chain, and its PKCS#8 key
    NAME.both             key and chain in one file
    NAME.p12              PKCS#12 with the password "changeit"
    client.enc.key        the client's key, encrypted with the password "keypass"

The server certificate is named "server" and covers localhost and 127.0.0.1. "noip" covers localhost
alone. The bad ones are wronghost, expired, notyet, revoked and selfsigned. "otherca" and
"otherclient" are signed by otherroot.pem. The subject of "client" and "client2" is CN=client and
further fields.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

STORE_PASSWORD = "changeit"
KEY_PASSWORD = "keypass"
LOCAL = ("localhost", "127.0.0.1")
_DAY = datetime.timedelta(days=1)
_Key = ec.EllipticCurvePrivateKey


class Issuer:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        now = _now()
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        name: str,
        hosts: Sequence[str],
        *,
        start: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
    ) -> tuple[x509.Certificate, _Key]:
        """Return a certificate for the hosts, and its key. It is valid for 29 days by default."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _leaf(name, hosts, key, start, end).issuer_name(self.name)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
            critical=False,
        )
        return builder.sign(self.key, hashes.SHA256()), key

    def revoke(self, *certificates: x509.Certificate) -> bytes:
        """Return a CRL that revokes these, as PEM."""
        now = _now()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - _DAY)
            .next_update(now + 30 * _DAY)
        )
        for certificate in certificates:
            revoked = x509.RevokedCertificateBuilder()
            revoked = revoked.serial_number(certificate.serial_number).revocation_date(now - _DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _leaf(
    name: str,
    hosts: Sequence[str],
    key: _Key,
    start: datetime.datetime | None,
    end: datetime.datetime | None,
) -> x509.CertificateBuilder:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start or _now() - _DAY)
        .not_valid_after(end or _now() + 29 * _DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    )


class Certificates:
    """The folder of the module's docstring."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._keys: dict[str, _Key] = {}
        ca, other = Issuer("ca"), Issuer("otherroot")
        self._ca = ca
        self.path("ca.pem").write_bytes(ca.pem)
        self.path("otherroot.pem").write_bytes(other.pem)
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        future = datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC)
        self._write("server", *ca.issue("server", LOCAL), ca)
        self._write("noip", *ca.issue("noip", ["localhost"]), ca)
        self._write("wronghost", *ca.issue("wronghost", ["kafka.example.org"]), ca)
        self._write("expired", *ca.issue("expired", LOCAL, start=past, end=past + _DAY), ca)
        self._write("notyet", *ca.issue("notyet", LOCAL, start=future, end=future + _DAY), ca)
        self._write("otherca", *other.issue("otherca", LOCAL), other)
        revoked, key = ca.issue("revoked", LOCAL)
        self._write("revoked", revoked, key, ca)
        self.path("ca.crl").write_bytes(ca.revoke(revoked))
        for name in "client", "client2":
            self._write(name, *ca.issue(name, [name]), ca)
        self._write("otherclient", *other.issue("otherclient", ["otherclient"]), other)
        self._write_selfsigned()
        encrypted = BestAvailableEncryption(KEY_PASSWORD.encode())
        self.path("client.enc.key").write_bytes(_key_pem(self._keys["client"], encrypted))

    @property
    def ca(self) -> str:
        """Path of the CA to trust."""
        return str(self.path("ca.pem"))

    def path(self, name: str) -> Path:
        """Return the path of a file of the folder."""
        return self._folder / name

    def renew(self, name: str) -> None:
        """Replace the files of "server", "client" or "client2" by a new certificate and key."""
        hosts = LOCAL if name == "server" else [name]
        self._write(name, *self._ca.issue(name, hosts), self._ca)

    def _write(self, name: str, certificate: x509.Certificate, key: _Key, issuer: Issuer) -> None:
        self._write_files(name, certificate, key, [issuer.certificate])

    def _write_selfsigned(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _leaf("selfsigned", LOCAL, key, None, None).issuer_name(_name("selfsigned"))
        self._write_files("selfsigned", builder.sign(key, hashes.SHA256()), key, [])

    def _write_files(
        self, name: str, certificate: x509.Certificate, key: _Key, chain: list[x509.Certificate]
    ) -> None:
        pem = b"".join(each.public_bytes(Encoding.PEM) for each in [certificate, *chain])
        plain = _key_pem(key, NoEncryption())
        self.path(f"{name}.pem").write_bytes(pem)
        self.path(f"{name}.key").write_bytes(plain)
        self.path(f"{name}.both").write_bytes(plain + pem)
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, chain, BestAvailableEncryption(STORE_PASSWORD.encode())
        )
        self.path(f"{name}.p12").write_bytes(store)
        self._keys[name] = key


def _key_pem(key: _Key, encryption: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
