"""Principals of client certificates, by Kafka's ``ssl.principal.mapping.rules``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from kohort.errors import InvalidOptionError
from kohort.types import NamedTuple

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
_GROUP = re.compile(r"\$(\d)")
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


class _Rule(NamedTuple):
    """A rule. ``pattern`` is None for DEFAULT. ``template`` is one of Python's re module."""

    pattern: re.Pattern[str] | None
    template: str = ""
    case: str = ""


def check_rules(rules: str) -> None:
    """Raise InvalidOptionError for text that is not a list of rules."""
    _parsed(rules)


def apply_rules(rules: str, name: str) -> str | None:
    """Return the name that the rules derive from a distinguished name, None if no rule matches."""
    for rule in _parsed(rules):
        if rule.pattern is None:
            return name
        found = rule.pattern.fullmatch(name)
        if found is not None:
            made = found.expand(rule.template)
            return {"L": made.lower(), "U": made.upper()}.get(rule.case, made)
    return None


@cache
def _parsed(rules: str) -> tuple[_Rule, ...]:
    parsed, at = [], 0
    while at < len(rules):
        rule = _RULE.match(rules, at)
        if rule is None:
            raise InvalidOptionError(f"principal_rules: {rules!r} is not a list of rules")
        at = rule.end()
        parsed.append(_Rule(None) if rule[1] is None else _rule(rules, rule[1], rule[2], rule[3]))
    return tuple(parsed)


def _rule(rules: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidOptionError(
            f"principal_rules {rules!r} has a bad regular expression: {error}"
        ) from error
    groups = [int(number) for number in _GROUP.findall(replacement)]
    if max(groups, default=0) > compiled.groups:
        raise InvalidOptionError(f"principal_rules: {rules!r} names a group that does not exist")
    template = _GROUP.sub(r"\\g<\1>", replacement.replace("\\", r"\\"))
    return _Rule(compiled, template, case)
