"""Parser of RE2J's syntax, with RE2J's errors in RE2J's order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kohort.broker.groups.consumer._re2j import _characters as characters
from kohort.broker.groups.consumer._re2j._classes import (
    escaped_character,
    parse_class,
    perl_class,
    unicode_class,
)
from kohort.broker.groups.consumer._re2j._errors import RegexError
from kohort.broker.groups.consumer._re2j._nodes import (
    Characters,
    Node,
    TextAssertion,
    alternation,
    concatenation,
    repetition,
)

__all__ = ["RegexError", "parse"]

_MAX_HEIGHT = 150
"""Most levels of an expression, so that recursion over it ends."""
_MAX_SIZE = 1 << 16
"""Most transitions of a compiled expression. No heartbeat has a pattern that needs more of them
without nested counts. RE2J has no such limit, and copies parts until its memory is full."""
_MAX_REPEAT = 1_000
_MAX_REPEAT_DIGITS = 4
_BAD_REPEAT = "invalid repeat count"
_REPEAT = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}", re.ASCII)
_CAPTURE = re.compile(r"[A-Za-z0-9_]+")
_ESCAPED = {
    "A": TextAssertion.BEGIN_TEXT,
    "b": TextAssertion.WORD_BOUNDARY,
    "B": TextAssertion.NO_WORD_BOUNDARY,
    "z": TextAssertion.END_TEXT,
}


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False
    multi_line: bool = False
    dot_matches_newline: bool = False


@dataclass(slots=True)
class _Group:
    """Group that is open. ``outer`` are the flags that apply after it."""

    outer: _Flags
    alternatives: list[list[Node]] = field(default_factory=lambda: [[]])

    def node(self) -> Node:
        return alternation([concatenation(parts) for parts in self.alternatives])


def parse(pattern: str) -> Node:
    """Return the expression of a pattern. RegexError if RE2J rejects it."""
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags = _Flags()
        self._groups = [_Group(self._flags)]
        self._names: set[str] = set()

    def parse(self) -> Node:
        after_repeat = False
        while self._at < len(self._pattern):
            after_repeat = self._step(after_repeat)
        if len(self._groups) > 1:
            raise RegexError("missing closing )")
        return self._checked(self._groups[0].node())

    def _step(self, after_repeat: bool) -> bool:
        """Parse the next element. True if a repetition must not follow it."""
        character = self._pattern[self._at]
        if character in "*+?{":
            return self._parse_repeat(character, after_repeat)
        if character == "(":
            self._open_group()
        elif character == "[":
            mask, self._at = parse_class(self._pattern, self._at, fold=self._flags.fold)
            self._push(Characters(mask))
        elif character == "\\":
            self._parse_escape()
        else:
            self._at += 1
            if character == ")":
                self._close_group()
            elif character == "|":
                self._groups[-1].alternatives.append([])
            else:
                self._push(self._single(character))
        return False

    def _push(self, node: Node) -> None:
        self._groups[-1].alternatives[-1].append(node)

    def _single(self, character: str) -> Node:
        if character == "^":
            return TextAssertion.BEGIN_LINE if self._flags.multi_line else TextAssertion.BEGIN_TEXT
        if character == "$":
            return TextAssertion.END_LINE if self._flags.multi_line else TextAssertion.END_TEXT
        if character == ".":
            without = 0 if self._flags.dot_matches_newline else characters.NEWLINE
            return Characters(characters.EVERY & ~without)
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        code = ord(character)
        mask_of = characters.folded_range if self._flags.fold else characters.mask_of_range
        return Characters(mask_of(code, code))

    def _parse_escape(self) -> None:
        pattern, at = self._pattern, self._at
        escaped = pattern[at + 1 : at + 2]
        if escaped in _ESCAPED:
            self._at += 2
            self._push(_ESCAPED[escaped])
        elif escaped == "Q":
            end = pattern.find("\\E", at + 2)
            quoted = pattern[at + 2 :] if end < 0 else pattern[at + 2 : end]
            self._at = len(pattern) if end < 0 else end + 2
            for character in quoted:
                self._push(self._literal(character))
        elif found := (
            unicode_class(pattern, at, fold=self._flags.fold)
            or perl_class(pattern, at, fold=self._flags.fold)
        ):
            mask, self._at = found
            self._push(Characters(mask))
        else:
            character, self._at = escaped_character(pattern, at)
            self._push(self._literal(character))

    def _parse_repeat(self, character: str, after_repeat: bool) -> bool:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(character, (0, 0))
        end = self._at + 1
        if character == "{":
            found = _REPEAT.match(self._pattern, self._at)
            if found is None:
                self._at = end
                self._push(self._literal("{"))
                return True  # RE2J takes the literal for a repetition when it looks back
            end = found.end()
            least, most = _bounds(found)
        if self._pattern.startswith("?", end):
            end += 1
        if after_repeat:
            raise RegexError("invalid nested repetition operator")
        parts = self._groups[-1].alternatives[-1]
        if not parts:
            raise RegexError("missing argument to repetition operator")
        parts[-1] = self._checked(repetition(parts[-1], least, most))
        self._at = end
        return True

    def _open_group(self) -> None:
        rest = self._pattern[self._at :]
        if rest.startswith(("(?P<", "(?<")):
            begin = 4 if rest[2] == "P" else 3
            end = rest.find(">", begin)
            name = rest[begin:end]
            if end < 0 or _CAPTURE.fullmatch(name) is None:
                raise RegexError("invalid named capture")
            if name in self._names:
                raise RegexError("duplicate capture group name")
            self._names.add(name)
            self._at += end + 1
        elif rest.startswith("(?"):
            self._parse_flags()
            return
        else:
            self._at += 1
        self._groups.append(_Group(self._flags))

    def _parse_flags(self) -> None:
        found = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])").match(self._pattern, self._at)
        if found is None:
            raise RegexError("invalid or unsupported Perl syntax")
        on, off, end = found[1], found[2] or "", found[3]
        outer = self._flags
        flags = {
            "i": outer.fold,
            "m": outer.multi_line,
            "s": outer.dot_matches_newline,
            **dict.fromkeys(on, True),
            **dict.fromkeys(off, False),
        }
        if end == ":":
            self._groups.append(_Group(outer))
        self._flags = _Flags(flags["i"], flags["m"], flags["s"])
        self._at = found.end()

    def _close_group(self) -> None:
        if len(self._groups) == 1:
            raise RegexError("regexp/syntax: internal error")
        group = self._groups.pop()
        self._flags = group.outer
        self._push(self._checked(group.node()))

    @staticmethod
    def _checked(node: Node) -> Node:
        if node.measure.height > _MAX_HEIGHT:
            raise RegexError("expression nests too deeply")
        if node.measure.size > _MAX_SIZE:
            raise RegexError(_BAD_REPEAT)
        return node


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    # Python's int() raises ValueError for a number of several thousand digits.
    if any(len(digits) > _MAX_REPEAT_DIGITS for digits in (found[1], found[3] or "")):
        raise RegexError(_BAD_REPEAT)
    least = int(found[1])
    most = least if found[2] is None else int(found[3]) if found[3] else None
    if max(least, most or 0) > _MAX_REPEAT or (most is not None and least > most):
        raise RegexError(_BAD_REPEAT)
    return least, most
