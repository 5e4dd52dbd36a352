"""OpenSSL's names for Java's cipher suites."""

from __future__ import annotations

import re

from kohort.config.options._option_types import ValueFault

_TLS_1_3 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_SUITE = re.compile(
    r"TLS_(?P<exchange>RSA|(?:EC)?DHE_(?:RSA|ECDSA|DSS))_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<hash>SHA(?:256|384)?)"
    r"|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)


def openssl_names(names: str) -> str:
    """Return OpenSSL's cipher list for Java's names, which commas or colons separate.

    Raises ValueError for a suite that OpenSSL does not have. Raises it too for a choice among the
    suites of TLS 1.3, because Python cannot make one.
    """
    given = [name.strip() for name in re.split("[,:]", names) if name.strip()]
    chosen = _TLS_1_3.intersection(given)
    if chosen and chosen != _TLS_1_3:
        raise ValueFault(
            "Python cannot choose among the cipher suites of TLS 1.3. Name all three or none, or "
            "give an ssl_context"
        )
    found = [_openssl_name(name) for name in given if name not in _TLS_1_3]
    if not found:
        raise ValueFault(
            "the list has all suites of TLS 1.3 and none of TLS 1.2. Set ssl_min_version='TLSv1.3'"
        )
    return ":".join(found)


def _openssl_name(name: str) -> str:
    if not name.startswith("TLS_"):
        return name
    suite = _SUITE.fullmatch(name)
    if suite is None:
        raise ValueFault("OpenSSL does not have this suite of Java, or the suite is not safe")
    exchange = "" if suite["exchange"] == "RSA" else suite["exchange"].replace("_", "-") + "-"
    if suite["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    mode = "-GCM" if suite["mode"] == "GCM" else ""
    return f"{exchange}AES{suite['bits']}{mode}-{suite['hash']}"
