"""Character classes and escapes in the syntax of RE2J.

A function takes the pattern and a position and returns its result with the position after it.
"""

from __future__ import annotations

import re

from kohort.broker.groups.consumer._re2j import _characters as characters
from kohort.broker.groups.consumer._re2j._errors import RegexError

_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})", re.ASCII)
_HEX = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})", re.ASCII)
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST_CODE = 0x10FFFF
_BAD_RANGE = "invalid character class range"
_BAD_ESCAPE = "invalid escape sequence"
_NO_BRACKET = "missing closing ]"


def escaped_character(pattern: str, at: int) -> tuple[str, int]:
    """Parse an escape that stands for one character."""
    escaped = pattern[at + 1 : at + 2]
    if not escaped:
        raise RegexError("trailing backslash at end of expression")
    if found := _OCTAL.match(pattern, at):
        return chr(int(found[1], 8)), found.end()
    if found := _HEX.match(pattern, at):
        code = int(found[1] or found[2], 16)
        if code > _LAST_CODE:
            raise RegexError(_BAD_ESCAPE)
        return chr(code), found.end()
    if escaped in _CONTROLS:
        return _CONTROLS[escaped], at + 2
    if escaped.isascii() and escaped.isalnum():
        raise RegexError(_BAD_ESCAPE)
    return escaped, at + 2


def perl_class(pattern: str, at: int, *, fold: bool) -> tuple[int, int] | None:
    r"""Parse a class such as ``\d``. Return None if there is none."""
    name = pattern[at + 1 : at + 2]
    mask = characters.PERL_CLASSES.get(name.lower())
    if not pattern.startswith("\\", at) or mask is None:
        return None
    if fold:
        mask = characters.folded(mask)
    return (characters.EVERY & ~mask if name.isupper() else mask), at + 2


def unicode_class(pattern: str, at: int, *, fold: bool) -> tuple[int, int] | None:
    r"""Parse a class such as ``\p{Greek}``. Return None if there is none."""
    if not pattern.startswith(("\\p", "\\P"), at):
        return None
    is_negated = pattern[at + 1] == "P"
    name, end = pattern[at + 2 : at + 3], at + 3
    if name == "{":
        end = pattern.find("}", end) + 1
        name = pattern[at + 3 : end - 1]
    if not end or at + 2 == len(pattern):
        raise RegexError(_BAD_RANGE)
    if name.startswith("^"):
        is_negated, name = not is_negated, name[1:]
    mask = characters.unicode_class(name, fold=fold)
    if mask is None:
        raise RegexError(_BAD_RANGE)
    return (characters.EVERY & ~mask if is_negated else mask), end


def parse_class(pattern: str, at: int, *, fold: bool) -> tuple[int, int]:
    """Parse a class in brackets."""
    at += 1
    is_negated = pattern.startswith("^", at)
    at += is_negated
    mask, first = 0, True
    while first or not pattern.startswith("]", at):
        first = False
        found = (
            _posix_class(pattern, at, fold=fold)
            or unicode_class(pattern, at, fold=fold)
            or perl_class(pattern, at, fold=fold)
            or _range(pattern, at, fold=fold)
        )
        mask |= found[0]
        at = found[1]
    return (characters.EVERY & ~mask if is_negated else mask), at + 1


def _posix_class(pattern: str, at: int, *, fold: bool) -> tuple[int, int] | None:
    end = pattern.find(":]", at)
    if not pattern.startswith("[:", at) or end < 0:
        return None
    # RE2J also finds the colon of the beginning in "[:]".
    name = pattern[at + 2 : end]
    mask = characters.POSIX_CLASSES.get(name.removeprefix("^"))
    if mask is None:
        raise RegexError(_BAD_RANGE)
    if fold:
        mask = characters.folded(mask)
    return (characters.EVERY & ~mask if name.startswith("^") else mask), end + 2


def _range(pattern: str, at: int, *, fold: bool) -> tuple[int, int]:
    low, at = _class_character(pattern, at)
    high = low
    if pattern.startswith("-", at) and not pattern.startswith("-]", at):
        high, at = _class_character(pattern, at + 1)
        if high < low:
            raise RegexError(_BAD_RANGE)
    mask_of = characters.folded_range if fold else characters.mask_of_range
    return mask_of(ord(low), ord(high)), at


def _class_character(pattern: str, at: int) -> tuple[str, int]:
    if at >= len(pattern):
        raise RegexError(_NO_BRACKET)
    if pattern[at] == "\\":
        return escaped_character(pattern, at)
    return pattern[at], at + 1
