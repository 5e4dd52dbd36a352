"""Principals of client certificates, by Kafka's ``ssl.principal.mapping.rules``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kohort.errors import InvalidOptionError

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


def distinguished_name(subject: Iterable[Any]) -> str:
    """Return the subject of a certificate as RFC 2253 writes it, the last part first."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in subject
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") else text


def apply_rules(rules: str, name: str) -> str | None:
    """Return the name that the rules make of a distinguished name, None if no rule matches."""
    at = 0
    while at < len(rules):
        rule = _RULE.match(rules, at)
        if rule is None:
            raise InvalidOptionError(f"principal_rules: {rules!r} is not a list of rules")
        at = rule.end()
        if rule[1] is None:
            return name
        found = re.fullmatch(rule[1], name)
        if found is not None:
            made = re.sub(r"\$(\d)", r"\\g<\1>", rule[2].replace("\\", r"\\"))
            made = found.expand(made)
            return {"L": made.lower(), "U": made.upper()}.get(rule[3], made)
    return None
