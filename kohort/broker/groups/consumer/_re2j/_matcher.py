"""Match of a whole name. The time is polynomial, because no step is done twice."""

from __future__ import annotations

from kohort.broker.groups.consumer._re2j._characters import WORD
from kohort.broker.groups.consumer._re2j._nodes import (
    Alternation,
    Characters,
    Concatenation,
    Node,
    Repetition,
    TextAssertion,
)


def matches(root: Node, name: str) -> bool:
    """True if the expression matches the whole name."""
    if not name.isascii():
        return False
    return bool(_Match(name.encode()).ends(root, 0) >> len(name) & 1)


class _Match:
    """Match of one name. A set of positions is a number whose bit ``i`` is position ``i``."""

    __slots__ = ("_fitting", "_known", "_name")

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._known: dict[tuple[Node, int], int] = {}
        self._fitting: dict[Characters, int] = {}

    def ends(self, node: Node, at: int) -> int:
        """Return the positions where a match of the node that begins at ``at`` may end."""
        if isinstance(node, Characters):
            return (self._positions(node) & 1 << at) << 1
        if isinstance(node, TextAssertion):
            return 1 << at if self._holds(node, at) else 0
        found = self._known.get((node, at))
        if found is not None:
            return found
        reached = 1 << at
        if isinstance(node, Concatenation):
            for part in node.parts:
                reached = self._advance(part, reached)
        elif isinstance(node, Alternation):
            reached = 0
            for part in node.parts:
                reached |= self.ends(part, at)
        else:
            reached = self._repeat(node, reached)
        self._known[node, at] = reached
        return reached

    def _advance(self, node: Node, starts: int) -> int:
        """Return the positions where matches from any of the starts may end."""
        if isinstance(node, Characters):
            return (starts & self._positions(node)) << 1
        if isinstance(node, Repetition) and isinstance(node.part, Characters):
            return self._repeat(node, starts)
        ends = 0
        while starts:
            lowest = starts & -starts
            ends |= self.ends(node, lowest.bit_length() - 1)
            starts ^= lowest
        return ends

    def _repeat(self, node: Repetition, reached: int) -> int:
        for _ in range(node.least):
            before, reached = reached, self._advance(node.part, reached)
            if reached in (0, before):
                break
        new, left = reached, node.most
        if left is not None:
            left -= node.least
        while new and left != 0:
            new = self._advance(node.part, new) & ~reached
            reached |= new
            left = None if left is None else left - 1
        return reached

    def _positions(self, node: Characters) -> int:
        """Return the positions whose character is in the set."""
        found = self._fitting.get(node)
        if found is None:
            found = sum(1 << at for at, code in enumerate(self._name) if node.mask >> code & 1)
            self._fitting[node] = found
        return found

    def _holds(self, assertion: TextAssertion, at: int) -> bool:
        name = self._name
        match assertion:
            case TextAssertion.BEGIN_TEXT:
                return at == 0
            case TextAssertion.END_TEXT:
                return at == len(name)
            case TextAssertion.BEGIN_LINE:
                return at == 0 or name[at - 1] == 10
            case TextAssertion.END_LINE:
                return at == len(name) or name[at] == 10
        before = at > 0 and WORD >> name[at - 1] & 1
        after = at < len(name) and WORD >> name[at] & 1
        return (bool(before) != bool(after)) == (assertion is TextAssertion.WORD_BOUNDARY)
