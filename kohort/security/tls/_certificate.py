"""The names, issuer and dates of an X.509 certificate, for error texts and ``explain()``.

Python shows these only of a certificate that it has verified. The reader knows the few parts of DER
that certificates use. It checks each length, because the bytes may come from any server.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

MAX_NAMES = 100
"""Names of one certificate that are read; public certificates have at most as many."""
_SEQUENCE, _OID, _EXTENSIONS = 0x30, 0x06, 0xA3
_VERSION, _DNS_NAME, _IP_ADDRESS = 0xA0, 0x82, 0x87
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_SUBJECT_ALT_NAME = bytes((0x55, 0x1D, 0x11))
_ATTRIBUTES = {
    bytes((0x55, 0x04, 0x03)): "CN",
    bytes((0x55, 0x04, 0x0A)): "O",
    bytes((0x55, 0x04, 0x0B)): "OU",
    bytes((0x55, 0x04, 0x06)): "C",
}
_UTF16_STRING = 0x1E
_PEM = re.compile(r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate; ``names`` are its DNS names and IP addresses, in order."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]


def read_der(der: bytes) -> Certificate:
    """Read a certificate in DER form. ValueError if it is none."""
    try:
        return _read(der)
    except (IndexError, StopIteration) as error:
        raise ValueError("not a certificate in DER form") from error


def read_pem(text: str) -> Certificate | None:
    """Read the first certificate in a PEM text. Return None without a readable one."""
    found = _PEM.search(text)
    if found is None:
        return None
    try:
        pem = found[0].replace("TRUSTED ", "", 1) + " CERTIFICATE-----\n"
        return read_der(ssl.PEM_cert_to_DER_cert(pem))
    except ValueError:
        return None


def _read(der: bytes) -> Certificate:
    ((_, whole),) = _first(_items(memoryview(der)), 1)
    ((tag, signed),) = _first(_items(whole), 1)
    if tag != _SEQUENCE:
        raise ValueError("not a certificate in DER form")
    fields = list(_items(signed))
    if fields[0][0] == _VERSION:
        del fields[0]
    _serial, _algorithm, issuer, validity, subject = (value for _, value in fields[:5])
    not_before, not_after = (_time(*each) for each in _items(validity))
    names = [name for tag, value in fields[6:] if tag == _EXTENSIONS for name in _names(value)]
    return Certificate(
        _distinguished_name(subject),
        _distinguished_name(issuer),
        not_before,
        not_after,
        tuple(names[:MAX_NAMES]),
    )


def _first(items: Iterator[tuple[int, memoryview]], count: int) -> list[tuple[int, memoryview]]:
    return [next(items) for _ in range(count)]


def _items(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (tag, content) of each value in ``data``. IndexError, ValueError."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError("a length of DER has 1 to 4 bytes")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("a value of DER ends outside its container")
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, value: memoryview) -> datetime:
    text = bytes(value).decode("ascii")
    return datetime.strptime(text, _TIMES.get(tag, "")).replace(tzinfo=UTC)


def _distinguished_name(name: memoryview) -> str:
    parts = []
    for _, group in _items(name):
        for _, pair in _items(group):
            (_, oid), (tag, value) = _first(_items(pair), 2)
            if key := _ATTRIBUTES.get(bytes(oid)):
                encoding = "utf-16-be" if tag == _UTF16_STRING else "utf-8"
                parts.append(f"{key}={bytes(value).decode(encoding, 'replace')}")
    return ", ".join(parts)


def _names(extensions: memoryview) -> Iterator[str]:
    for _, all_of_them in _items(extensions):
        for _, extension in _items(all_of_them):
            (oid_tag, oid), *rest = _items(extension)
            if oid_tag == _OID and bytes(oid) == _SUBJECT_ALT_NAME:
                yield from _alternatives(rest[-1][1])


def _alternatives(value: memoryview) -> Iterator[str]:
    for _, names in _items(value):
        for tag, name in _items(names):
            if tag == _DNS_NAME:
                yield bytes(name).decode("ascii", "replace")
            elif tag == _IP_ADDRESS and len(name) in (4, 16):
                yield str(ipaddress.ip_address(bytes(name)))
