"""PKCS#12 stores, read by the package cryptography (extra ``crypto``)."""

from __future__ import annotations

from typing import Any

from kohort.errors import InvalidOptionError
from kohort.security._pem import KEYTOOL, is_java_store, reveal


def read_store(option: str, data: bytes, password: Any) -> tuple[bytes, bytes]:
    """Return the private key and the certificates of a store in PEM form, or empty bytes.

    The key's certificate comes first. Raises InvalidOptionError.
    """
    if is_java_store(data):
        raise InvalidOptionError(f"{option} is a Java key store (JKS). {KEYTOOL}")
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise InvalidOptionError(
            f"{option} is a PKCS#12 store, which needs cryptography: pip install 'kohort[crypto]'"
        ) from None
    secret = b"" if password is None else reveal(password)
    try:
        store = pkcs12.load_pkcs12(data, secret)
    except ValueError:
        raise InvalidOptionError(
            f"{option} is not a PKCS#12 store, or its password is another one"
        ) from None
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    found = ([store.cert] if store.cert is not None else []) + list(store.additional_certs)
    return key, b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found)
