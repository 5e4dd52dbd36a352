"""Types of security options. Their errors name the fault and repeat no value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.config.options._option_types import OneOf, OptionType, ValueFault, literal
from kohort.config.options._secret import Concealed, Secret, conceal

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----\s*")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class FilePath(OptionType):
    """A path of a file, or None. The file is read elsewhere.

    In text, ``none`` is a word that stands for None.
    """

    expected = "a path, or None"
    annotation = "str | PathLike[str] | None"

    def __init__(self, none: str | None = None) -> None:
        self._none = none

    def parse(self, text: str) -> str | None:
        return None if text == self._none else text

    def check(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, (str, bytes, os.PathLike)):
            raise ValueFault(f"not a path but {_type_name(value)}")
        path = os.fsdecode(value)
        if "-----BEGIN" in path:
            raise ValueFault("this is PEM text, not the path of a file")
        if not path or "\0" in path:
            raise ValueFault("no path")
        return path


class SecretText(OptionType):
    """A password as a str, bytes or Secret, or None."""

    expected = "a str, bytes or Secret, or None"
    annotation = "str | bytes | Secret | None"

    def __init__(self, *, stripped: bool = True) -> None:
        self.stripped = stripped

    def conceal(self, value: Any) -> Any:
        """Return the value as a Secret."""
        return conceal(value)

    def read_secret(self, secret: Secret) -> Secret:
        """Return the secret without the spaces around it, as Java reads a password."""
        return Secret(secret.reveal_bytes().strip()) if self.stripped else secret

    def check(self, value: Any) -> Secret | None:
        if value is None:
            return None
        if isinstance(value, Concealed):
            raise ValueFault(f"not a str but {value.type_name}")
        secret = value if isinstance(value, Secret) else Secret(value)
        del value
        if fault := self._fault(secret):
            raise ValueFault(fault)
        return self._normal_form(secret)

    def _normal_form(self, secret: Secret) -> Secret:
        return secret

    def _fault(self, secret: Secret) -> str:
        """Return the reason why the secret is refused, or "". An error would carry its text."""
        try:
            empty = not secret.reveal_bytes()
        except UnicodeEncodeError:
            return "not valid Unicode text"
        return "empty" if empty else ""


class KeyText(SecretText):
    """A private key as PEM text, or None."""

    expected = "PEM text of a private key (str, bytes or Secret), or None"

    def _fault(self, secret: Secret) -> str:
        fault = super()._fault(secret)
        if not fault and "PRIVATE KEY-----" not in secret.reveal():
            fault = "no private key in PEM form; a path belongs into the option for a file"
        return fault

    def _normal_form(self, secret: Secret) -> Secret:
        return Secret(pem_lines(secret.reveal()))


class KeyPassword(SecretText):
    """The password of a private key, or a function that returns it."""

    expected = "a str, bytes or Secret, a callable that returns one, or None"
    annotation = "str | bytes | Secret | Callable[[], str | bytes | Secret] | None"

    def check(self, value: Any) -> Any:
        return value if callable(value) else super().check(value)


class CertificateList(OptionType):
    """Certificates as PEM text, as DER bytes if ``der``, or None."""

    annotation = "str | bytes | None"

    def __init__(self, *, der: bool = False) -> None:
        self.der = der
        self.expected = f"PEM text of certificates{' or DER bytes' if der else ''}, or None"

    def check(self, value: Any) -> str | bytes | None:
        if value is None:
            return None
        if isinstance(value, (bytes, bytearray)):
            value = bytes(value)
            if self.der and not value.startswith(b"-----BEGIN") and b"\n-----BEGIN" not in value:
                return bytes(value)
            value = value.decode("latin-1")
        if not isinstance(value, str):
            raise ValueFault(f"not a str but {_type_name(value)}")
        if "PRIVATE KEY-----" in value:
            raise ValueFault("a private key is among the certificates")
        if "-----BEGIN CERTIFICATE-----" not in value and "TRUSTED CERTIFICATE---" not in value:
            raise ValueFault(
                "no certificate in PEM form; a path belongs into the option for a file"
            )
        return pem_lines(value)


def pem_lines(text: str) -> str:
    """Return PEM text with the line breaks that OpenSSL needs and Java does not."""
    return _BLOCK.sub(_wrapped, text) if "\n" not in text.strip() else text


def _wrapped(block: re.Match[str]) -> str:
    data = "".join(block[2].split())
    lines = [data[at : at + 64] for at in range(0, len(data), 64)]
    return "\n".join([f"-----BEGIN {block[1]}-----", *lines, f"-----END {block[1]}-----", ""])


class SslContext(OptionType):
    """An ``ssl.SSLContext``, or None."""

    is_opaque = True
    expected = "an ssl.SSLContext, or None"
    annotation = "SSLContext | None"

    def check(self, value: Any) -> Any:
        if value is not None:
            import ssl  # consumers of a PLAINTEXT listener do not need it

            if not isinstance(value, ssl.SSLContext):
                raise ValueFault(f"not an SSLContext but {_type_name(value)}")
            if value.protocol == ssl.PROTOCOL_TLS_SERVER:
                raise ValueFault("a context of a server: make it with ssl.PROTOCOL_TLS_CLIENT")
        return value


class OpaqueFunction(OptionType):
    """A function that returns secrets, or None."""

    is_opaque = True
    annotation = "Callable[[], Login | Awaitable[Login]] | None"

    def conceal(self, value: Any) -> Any:
        """Return a function unchanged. Conceal other values, which may be the secret itself."""
        return conceal(value)

    def __init__(self, expected: str) -> None:
        self.expected = f"{expected}, or None"

    def check(self, value: Any) -> Any:
        if value is not None and not callable(value):
            raise ValueFault("not callable")
        return value


class TokenProviderOption(OptionType):
    """A source of OAuth tokens: an object with ``token()``, or a callable."""

    is_opaque = True
    expected = "an object with a method token(), or a callable; sync or async; or None"
    annotation = "TokenProvider | Callable[[], object] | None"

    def conceal(self, value: Any) -> Any:
        """Return a provider unchanged. Conceal other values, which may be a token."""
        return value if callable(getattr(value, "token", None)) else conceal(value)

    def check(self, value: Any) -> Any:
        if isinstance(value, type):
            raise ValueFault("a class; give an instance of it")
        if value is None or callable(value) or callable(getattr(value, "token", None)):
            return value
        raise ValueFault("neither callable nor an object with token()")


class UpperOneOf(OneOf):
    """One of a few words in upper case, given in any case."""

    def __init__(self, *words: str, nullable: bool = False) -> None:
        super().__init__(*words)
        self.nullable = nullable
        if nullable:
            self.expected += ", or None"
            self.annotation += " | None"

    def check(self, value: Any) -> Any:
        if value is None and self.nullable:
            return None
        if not isinstance(value, str):
            raise ValueFault(f"not a str but {_type_name(value)}")
        if value.upper() not in self.words:
            raise ValueFault("none of these, in any case")
        return value.upper()


class SingleWord(OneOf):
    """One of a few words or their aliases."""

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueFault(f"not a str but {_type_name(value)}")
        try:
            return super().check(value)
        except ValueError:
            raise ValueFault("none of these") from None


class SingleLine(OptionType):
    """A text without control characters, or None."""

    def __init__(self, *, nullable: bool = True) -> None:
        self.nullable = nullable
        self.expected = "a non-empty str" + (", or None" if nullable else "")
        self.annotation = "str | None" if nullable else "str"

    def check(self, value: Any) -> str | None:
        if value is None and self.nullable:
            return None
        if not isinstance(value, str):
            raise ValueFault(f"not a str but {_type_name(value)}")
        if not value:
            raise ValueFault("empty")
        if any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in value):
            raise ValueFault("a control character in it")
        return value


class Opaque(OptionType):
    """Any object, or None."""

    is_opaque = True
    annotation = "object"

    def __init__(self, expected: str) -> None:
        self.expected = f"{expected}, or None"

    def check(self, value: Any) -> Any:
        return value


HOSTNAME_WORDS = {"https": True, "none": False, "": False}
"""Java's algorithms of the check of host names."""
SYSTEM_CA = "probe"
"""librdkafka's word for the CA certificates of the system."""


class TlsVersion(OptionType):
    """The lowest version of TLS. Java's list selects the lowest of its versions."""

    expected = '"TLSv1.2" or "TLSv1.3"'
    annotation = f"{literal(*TLS_VERSIONS)} | TLSVersion"

    def check(self, value: Any) -> str:
        name = getattr(value, "name", value)  # a member of ssl.TLSVersion
        if not isinstance(name, str):
            raise ValueFault(f"not a str but {_type_name(value)}")
        for version in TLS_VERSIONS:
            if name.replace("_", ".").lower() == version.lower():
                return version
        raise ValueFault("versions before TLS 1.2 are not used")

    def parse(self, text: str) -> str:
        names = [part.strip() for part in text.split(",")]
        known = [name for name in names if name in TLS_VERSIONS]
        return min(known, default=text)


class Ciphers(OptionType):
    """Cipher suites of TLS 1.2, as OpenSSL's list or Java's names."""

    expected = 'OpenSSL\'s cipher list ("ECDHE+AESGCM"), names of Java, or None'
    annotation = "str | Sequence[str] | None"

    def check(self, value: Any) -> str | None:
        if value is None:
            return None
        names = value if isinstance(value, str) else ",".join(_texts(value))
        if not names.strip():
            raise ValueFault("no cipher suite")
        if "TLS_" not in names:
            return names
        from kohort.config.security._ciphers import openssl_names  # names of Java are rare

        return openssl_names(names)

    def parse(self, text: str) -> str | None:
        return text or None


class Extensions(OptionType):
    """SASL extensions (RFC 7628), as a mapping or as ``name=value,name=value``.

    Names have letters only, values no control characters.
    """

    expected = 'a mapping of str to str, or "name=value,name=value"'
    annotation = "Mapping[str, str] | Sequence[tuple[str, str]] | str"

    def check(self, value: Any) -> tuple[tuple[str, str], ...]:
        if isinstance(value, str):
            value = self.parse(value)
        items = value.items() if isinstance(value, Mapping) else value
        if not isinstance(items, Iterable):
            raise ValueFault(f"not a mapping but {_type_name(value)}")
        pairs = tuple(tuple(item) for item in items if not isinstance(item, str))
        if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in pairs):
            raise ValueFault("names and values are texts")
        for name, text in pairs:
            if not (name.isascii() and name.isalpha()):
                raise ValueFault("an extension name may contain only letters")
            if name == "auth":
                raise ValueFault("the name auth is reserved")
            if not all(char in "\t\r\n" or " " <= char <= "~" for char in text) or not text:
                raise ValueFault("an extension has a character that SASL does not allow")
        return pairs

    def parse(self, text: str) -> dict[str, str]:
        pairs = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise ValueFault("a part without =")
            pairs[name.strip()] = value.strip()
        return pairs


class Claims(OptionType):
    """Claims of an unsecured token, which are texts, numbers or lists of texts."""

    expected = "a mapping of claims (texts, numbers, lists of texts)"
    annotation = "Mapping[str, Claim] | Sequence[tuple[str, Claim]]"

    def check(self, value: Any) -> tuple[tuple[str, Any], ...]:
        items = value.items() if isinstance(value, Mapping) else value
        if isinstance(value, str) or not isinstance(items, Iterable):
            raise ValueFault(f"not a mapping but {_type_name(value)}")
        claims = []
        for item in items:
            name, claim = item
            if isinstance(claim, (list, tuple)) and all(isinstance(part, str) for part in claim):
                claim = tuple(claim)
            elif isinstance(claim, bool) or not isinstance(claim, (str, int, float)):
                raise ValueFault("a claim is a text, a number or a list of texts")
            if not isinstance(name, str) or not name:
                raise ValueFault("a claim has a name")
            claims.append((name, claim))
        return tuple(claims)


def _texts(value: Any) -> list[str]:
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise ValueFault("not a list")
    texts = list(value)
    if not all(isinstance(text, str) for text in texts):
        raise ValueFault("not a list of texts")
    return texts


def _type_name(value: object) -> str:
    return type(value).__name__
