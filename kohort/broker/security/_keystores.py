"""Conversion of keystores and truststores of ``server.properties`` to PEM files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kohort.broker.security._certificates import CertificateFiles
from kohort.errors import InvalidOptionError

Value = Callable[[str], str | None]
"""Function that returns a setting by its name, None if it is not set."""

_JKS = bytes.fromhex("feedfeed")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64


def certificate_files(value: Value, folder: Path) -> CertificateFiles | None:
    """Return the PEM files of a broker, None if the properties name no keystore.

    Other formats are converted into files of the folder. InvalidOptionError for unreadable stores.
    """
    key_password = value("ssl.key.password")
    if (key := value("ssl.keystore.key")) is not None:
        chain = value("ssl.keystore.certificate.chain")
        if chain is None:
            raise InvalidOptionError("ssl.keystore.key requires ssl.keystore.certificate.chain")
        keystore = _write(folder / "keystore.pem", _lines(key) + _lines(chain))
    elif (location := value("ssl.keystore.location")) is None:
        for name in ("ssl.key.password", "ssl.keystore.password"):
            if value(name) is not None:
                raise InvalidOptionError(f"{name} requires ssl.keystore.location")
        return None
    elif (data := _read("keystore", location)) and _is_pem(data):
        keystore = location
    else:
        password = _required(value, "ssl.keystore.password")
        pem = _from_pkcs12("keystore", data, password)
        keystore, key_password = _write(folder / "keystore.pem", pem), None
    truststore = _truststore(value, folder) or keystore
    return CertificateFiles(truststore, keystore, keystore, key_password)


def _truststore(value: Value, folder: Path) -> str | None:
    path = folder / "truststore.pem"
    if (certificates := value("ssl.truststore.certificates")) is not None:
        return _write(path, _lines(certificates))
    location = value("ssl.truststore.location")
    if location is None:
        return None
    data = _read("truststore", location)
    if _is_pem(data):
        return location
    password = value("ssl.truststore.password")  # a store of certificates may have none
    return _write(path, _from_pkcs12("truststore", data, password))


def _read(kind: str, location: str) -> bytes:
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise InvalidOptionError(
            f"ssl.{kind}.location {location} cannot be read: {error.strerror}"
        ) from error
    if data.startswith(_JKS):
        raise InvalidOptionError(
            f"ssl.{kind}.location: {location} is a Java keystore of type JKS. Convert it by "
            f"keytool -importkeystore -srckeystore {location} -destkeystore {kind}.p12 "
            "-deststoretype PKCS12"
        )
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _from_pkcs12(kind: str, data: bytes, password: str | None) -> bytes:
    """Return key and certificates of a PKCS#12 store as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise InvalidOptionError(
            f"ssl.{kind}.location: PKCS#12 stores require cryptography. Run "
            "pip install 'kohort[testing]', or give PEM files"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise InvalidOptionError(
            f"ssl.{kind}.location: the file is neither PEM nor a PKCS#12 store with the password "
            f"of ssl.{kind}.password"
        ) from None
    certificates = [each for each in (store.cert, *store.additional_certs) if each is not None]
    pem = b"".join(
        each.certificate.public_bytes(serialization.Encoding.PEM) for each in certificates
    )
    if store.key is not None:
        pem = (
            store.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + pem
        )
    return pem


def _lines(pem: str) -> bytes:
    """Return PEM text whose line breaks may have become spaces."""
    blocks = []
    for label, content in _BLOCK.findall(pem):
        body = "".join(content.split())
        lines = [body[at : at + _LINE] for at in range(0, len(body), _LINE)]
        blocks.append("\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", "")))
    if not blocks:
        raise InvalidOptionError(
            "ssl.keystore.key, ssl.keystore.certificate.chain and ssl.truststore.certificates "
            "must be PEM text"
        )
    return "".join(blocks).encode()


def _required(value: Value, name: str) -> str:
    found = value(name)
    if found is None:
        raise InvalidOptionError(f"{name} is missing: a PKCS#12 store requires it")
    return found


def _write(path: Path, data: bytes) -> str:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return str(path)
