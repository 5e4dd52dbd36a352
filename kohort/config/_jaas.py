"""Parser of ``sasl.jaas.config``, which has one entry of Java's login modules.

The text holds passwords, and a misplaced word of it may be one. A fault is therefore a sentence
without a word of the text. It is returned and not raised, so no traceback has the text either.
"""

from __future__ import annotations

import re
from typing import Final

from kohort.config.options._secret import Secret
from kohort.types import NamedTuple

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_BLANKS = re.compile(r"(?:[\0-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*)+", re.DOTALL)
# Java's StreamTokenizer: a word begins with a letter, "_", "$" or a character above 159.
_WORD = re.compile(r"[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*")
_NUMBER = re.compile(r"-?[0-9.]+")
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")

NO_MODULE: Final = "it names no login module"
NO_FLAG: Final = "the module is not followed by required, requisite, sufficient or optional"
NO_VALUE: Final = (
    "an option is not followed by = and a value. Values in quotes may hold every character, others "
    "begin with a letter and hold letters, digits, _ - $ and ."
)
NOT_ENDED: Final = "it does not end with a semicolon"
NOT_ONE: Final = "it has more than one login module"


class JaasEntry(NamedTuple):
    """A login module with its options. ``repr`` shows nothing of it."""

    module: str
    flag: str
    options: dict[str, Secret]

    def __repr__(self) -> str:
        return "JaasEntry(...)"


class _Token(NamedTuple):
    text: str | None
    """The text of a word or of a quoted value; None for anything else."""
    mark: str
    """A character that stands for itself, such as ``=`` or ``;``."""


def parse_jaas(secret: Secret) -> JaasEntry | str:
    """Return the entry, or the fault: a sentence that repeats nothing of the text."""
    tokens = _tokens(secret.reveal())
    entries = []
    at = 0
    while at < len(tokens):
        found = _entry(tokens, at)
        if isinstance(found, str):
            return found
        entry, at = found
        entries.append(entry)
    if len(entries) > 1:
        return NOT_ONE
    return entries[0] if entries else NO_MODULE


def _entry(tokens: list[_Token], at: int) -> tuple[JaasEntry, int] | str:
    """Read the entry that begins at a token; return it with the number of the next token."""
    module = tokens[at].text
    if not module:
        return NO_MODULE
    if at + 1 == len(tokens) or (tokens[at + 1].text or "").lower() not in _FLAGS:
        return NO_FLAG
    flag = (tokens[at + 1].text or "").lower()
    options: dict[str, Secret] = {}
    at += 2
    while at < len(tokens) and tokens[at].mark != ";":
        key, value = tokens[at].text, tokens[at + 2].text if at + 2 < len(tokens) else None
        if key is None or value is None or tokens[at + 1].mark != "=":
            return NO_VALUE
        options[key] = Secret(value)
        at += 3
    return (JaasEntry(module, flag, options), at + 1) if at < len(tokens) else NOT_ENDED


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    while at < len(text):
        if blanks := _BLANKS.match(text, at):
            at = blanks.end()
        elif text[at] in "\"'":
            value, at = _quoted(text, at)
            found.append(_Token(value, ""))
        elif word := _WORD.match(text, at):
            found.append(_Token(word[0], ""))
            at = word.end()
        else:
            number = _NUMBER.match(text, at)
            found.append(_Token(None, "" if number else text[at]))
            at = number.end() if number else at + 1
    return found


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Read a quoted value; a line break ends it, as in Java."""
    quote = text[at]
    at += 1
    value = []
    while at < len(text) and text[at] not in ("\n", "\r"):
        char = text[at]
        at += 1
        if char == quote:
            break
        if char == "\\" and at < len(text):
            if octal := _OCTAL.match(text, at):
                char, at = chr(int(octal[0], 8)), octal.end()
            else:
                char, at = _ESCAPES.get(text[at], text[at]), at + 1
        value.append(char)
    return "".join(value), at
