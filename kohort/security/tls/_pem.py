"""PEM from options, files and PKCS#12 stores, brought into an SSLContext.

OpenSSL answers many mistakes with the same words, so the reason of a failure is looked up in the
file. An error names the option. It shows a path only if there is such a file, because a secret may
have been given to the wrong option. ``kohort.config.security._security_types`` checks the form of
PEM text in options, and divides text that Java accepts in one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from kohort.errors import InvalidOptionError

MAX_FILE = 16 << 20
"""Largest file in bytes. The CAs of a whole system take less than 1 MiB."""
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED")
_CERTIFICATE = re.compile(rb"-----BEGIN (TRUSTED )?CERTIFICATE-----")
_CRL = re.compile(rb"-----BEGIN X509 CRL-----")
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""Names of certificates in a folder, made by ``openssl rehash``."""
_JKS = bytes.fromhex("feedfeed")
_JCEKS = bytes.fromhex("cececece")
_DER = tuple(bytes((0x30, each)) for each in range(0x80, 0x85))
"""First bytes of certificates and stores in DER form: a sequence with a long length."""


def read_file(option: str, path: str) -> bytes:
    """Return the content of a file that an option names. Raises InvalidOptionError."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE)
    except FileNotFoundError:
        raise InvalidOptionError(f"{option}: there is no such file") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a path"
        raise InvalidOptionError(f"{option} names a file that cannot be read: {why}") from None


def check_folder(option: str, path: str) -> None:
    """Raise InvalidOptionError for a folder where OpenSSL finds no certificate."""
    try:
        names = os.listdir(path)
    except OSError as error:
        raise InvalidOptionError(
            f"{option} names a folder that cannot be read: {error.strerror}"
        ) from None
    if not any(map(_HASHED.fullmatch, names)):
        raise InvalidOptionError(
            f"{option} is a folder where OpenSSL finds no certificate: run openssl rehash on it, "
            "or give a file"
        )


@contextlib.contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Yield a path where OpenSSL can read the data, which is in memory on Linux.

    Elsewhere it is a file that only this user may read. It is removed at the end.
    """
    if hasattr(os, "memfd_create"):
        try:
            fd = os.memfd_create("kohort", os.MFD_CLOEXEC)
        except OSError:  # a sandbox may forbid it
            pass
        else:
            try:
                with open(fd, "wb", closefd=False) as memory:
                    memory.write(data)
                yield f"/proc/self/fd/{fd}"
            finally:
                os.close(fd)
            return
    fd, path = tempfile.mkstemp(prefix="kohort-")
    try:
        with open(fd, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


def load_authorities(context: ssl.SSLContext, option: str, pem: bytes) -> None:
    """Trust the CAs in a PEM text. Raises InvalidOptionError without one."""
    if not _CERTIFICATE.search(pem):
        raise InvalidOptionError(f"{option} has no certificate in PEM form{_instead(pem)}")
    try:
        with as_file(pem) as path:
            context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError):
        raise InvalidOptionError(
            f"{option} has a certificate that is damaged: it does not decode"
        ) from None


def load_revocations(context: ssl.SSLContext, option: str, pem: bytes) -> None:
    """Refuse the certificates that a CRL in PEM form lists. Raises InvalidOptionError."""
    if not _CRL.search(pem):
        raise InvalidOptionError(f"{option} has no CRL in PEM form{_instead(pem)}")
    try:
        with as_file(pem) as path:
            context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError):
        raise InvalidOptionError(f"{option} has a CRL that is damaged") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def load_identity(
    context: ssl.SSLContext,
    certificates: tuple[str, bytes],
    key: tuple[str, bytes] | None,
    password: Any,
) -> None:
    """Load a client certificate. ``certificates`` and ``key`` are pairs of option and PEM.

    ``key`` is None if the chain has it. ``password`` is a text, a function that returns it, or
    None. OpenSSL would prompt for a missing one on the terminal, so it always gets a function.
    Raises InvalidOptionError.
    """
    option, chain = certificates
    key_option, key_pem = key or certificates
    if not _CERTIFICATE.search(chain):
        raise InvalidOptionError(f"{option} has no certificate in PEM form{_instead(chain)}")
    if not _KEY.search(key_pem):
        hint = ": set ssl_keyfile, or add the key to the file" if key is None else _instead(key_pem)
        raise InvalidOptionError(f"{key_option} has no private key in PEM form{hint}")
    asked: list[BaseException | None] = []
    supply = _supply(password, asked)
    try:
        with as_file(chain) as chain_path:
            if key is None:
                context.load_cert_chain(chain_path, None, supply)
            else:
                with as_file(key_pem) as key_path:
                    context.load_cert_chain(chain_path, key_path, supply)
    except (ssl.SSLError, ValueError, OSError, _NoPassword) as error:
        raise InvalidOptionError(_why_not(error, option, key_option, key_pem, asked)) from None
    except Exception as error:
        if asked and asked[0] is error:
            kind = type(error).__name__
            raise InvalidOptionError(f"the function given as ssl_password raised {kind}") from None
        raise


class _NoPassword(Exception):
    """An encrypted key without a password."""


def _supply(password: Any, asked: list[BaseException | None]) -> Callable[[], bytes]:
    def supply() -> bytes:
        asked.append(None)
        if password is None:
            raise _NoPassword
        try:
            return reveal(password)
        except Exception as error:
            asked[0] = error
            raise

    return supply


def reveal(secret: Any) -> bytes:
    """Return the bytes of a secret option, or of what its function returns."""
    if callable(secret):
        secret = secret()
    if hasattr(secret, "reveal_bytes"):
        return bytes(secret.reveal_bytes())
    if isinstance(secret, str):
        return secret.encode()
    if isinstance(secret, bytes | bytearray):
        return bytes(secret)
    raise TypeError("a password is a str or bytes")


def _why_not(
    error: Exception,
    option: str,
    key_option: str,
    key_pem: bytes,
    asked: list[BaseException | None],
) -> str:
    if isinstance(error, _NoPassword):
        return f"{key_option} has an encrypted private key: set ssl_password"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"{key_option} has a private key that is not the one of the certificate in {option}"
    if asked and _ENCRYPTED.search(key_pem):
        return f"ssl_password does not decrypt the private key in {key_option}"
    if getattr(error, "reason", None) in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"{option} has a certificate that OpenSSL refuses as too weak on this system"
    return f"{option} and {key_option} do not hold a certificate and key that OpenSSL can read"


def _instead(data: bytes) -> str:
    """Return a clause about data that is not the expected PEM."""
    if data.startswith((_JKS, _JCEKS)):
        return f": it is a Java key store. {KEYTOOL}"
    if data.startswith(_DER):
        return (
            ": it is in DER form, perhaps a PKCS#12 store. Give a store as ssl_keystore_location "
            "or ssl_truststore_location, and convert other files with openssl"
        )
    if _KEY.search(data):
        return ": it has a private key"
    if _CERTIFICATE.search(data):
        return ": it has certificates"
    return ""


KEYTOOL = (
    "Convert it: keytool -importkeystore -srckeystore FILE -destkeystore store.p12 "
    "-deststoretype PKCS12"
)


def is_java_store(data: bytes) -> bool:
    """True if the data is a JKS or JCEKS store."""
    return data.startswith((_JKS, _JCEKS))


def read_store(option: str, data: bytes, password: Any) -> tuple[bytes, bytes]:
    """Return the private key and certificates of a PKCS#12 store in PEM form, or empty bytes.

    The key's certificate comes first. The package cryptography of the extra ``crypto`` reads the
    store. Raises InvalidOptionError.
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
