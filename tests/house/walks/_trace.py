"""Trace of a real run: every entry into a function of kohort, and figures drawn from it."""

from __future__ import annotations

import ast
import asyncio
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from tests.house._source import ROOT

PACKAGE = f"{ROOT / 'kohort'}/"
MACHINE = frozenset(
    f"coordinator_client/{name}.py"
    for name in (
        "_exchange",
        "_failures",
        "_heartbeat_timer",
        "_leadership",
        "_leaving",
        "_member",
        "_membership",
        "_pending_commands",
        "_poll_interval",
        "_rebalance",
        "_rebalance_history",
        "_signal_handler",
        "_signal_reactions",
        "_state",
        "_steps",
    )
)
"""Files of the membership. A border is a change from one of them to another."""
ANONYMOUS = frozenset(
    ("<lambda>", "<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<module>")
)
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One entry into a function."""

    thread: int
    task: int
    file: str
    """Path below the package, such as ``fetcher/_buffer.py``."""
    function: str
    caller: tuple[str, str] | None
    """File and function of kohort that called it."""


@dataclass(frozen=True)
class Figures:
    """Counts over the first entry into each function, in order of time."""

    files: int
    functions: int
    threads: int
    """Changes of the thread."""
    reentries: int
    """Returns to a file after another one."""
    borders: int
    """Changes of the file inside the membership."""
    order: tuple[Entry, ...]


class Trace:
    """Profile function that notes entries, or the functions that hold a value."""

    def __init__(self, values: Collection[float] = ()) -> None:
        self.entries: list[Entry] = []
        self.holders: list[tuple[str, str]] = []
        self.is_on = False
        self._values = values

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if not self.is_on or event not in ("call", "return") or not name.startswith(PACKAGE):
            return
        place = name.removeprefix(PACKAGE), frame.f_code.co_qualname
        if event == "call":
            entry = Entry(threading.get_ident(), _task(), *place, _caller(frame))
            self.entries.append(entry)
        if self._values and place not in self.holders and self._is_held(frame, arg):
            self.holders.append(place)

    def _is_held(self, frame: FrameType, result: object) -> bool:
        """True if a value is an argument, a local, the result or an attribute in use."""
        things, names = [*frame.f_locals.values(), result], frame.f_code.co_names
        for _ in range(3):
            if any(type(each) in (int, float) and each in self._values for each in things):
                return True
            found = [_attribute(each, name) for each in things for name in names]
            things = [each for each in found if each is not None]
        return False

    def watch_this_thread(self) -> None:
        """Trace the calling thread."""
        sys.setprofile(self)

    def watch_threads_of(self, make: Callable[[], T]) -> T:
        """Run ``make`` and trace each thread that it starts."""
        threading.setprofile(self)
        try:
            return make()
        finally:
            threading.setprofile(None)


def _caller(frame: FrameType) -> tuple[str, str] | None:
    back = frame.f_back
    while back is not None and not back.f_code.co_filename.startswith(PACKAGE):
        back = back.f_back
    if back is None:
        return None
    return back.f_code.co_filename.removeprefix(PACKAGE), back.f_code.co_qualname


def _task() -> int:
    loop = asyncio._get_running_loop()
    if loop is None:
        return 0
    return id(asyncio.current_task(loop)) or 1


def _attribute(thing: object, name: str) -> object:
    """Return an attribute without running code of kohort. None if there is none."""
    values = getattr(thing, "__dict__", None)
    if type(values) is dict and name in values:
        return values[name]
    slot = getattr(type(thing), name, None)
    if type(slot).__name__ in ("member_descriptor", "_tuplegetter"):
        try:
            return slot.__get__(thing)  # type: ignore[union-attr]
        except AttributeError:
            return None
    return None


@functools.cache
def _properties() -> frozenset[tuple[str, str]]:
    """Return file and function of every property: a reader reads them as values."""
    found = set()

    def visit(node: ast.AST, prefix: str, file: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.", file)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if any("property" in ast.unparse(each) for each in child.decorator_list):
                    found.add((file, prefix + child.name))
            elif isinstance(child, (ast.If, ast.Try)):
                visit(child, prefix, file)

    for path in (ROOT / "kohort").rglob("*.py"):
        visit(ast.parse(path.read_text()), "", str(path).removeprefix(PACKAGE))
    return frozenset(found)


def figures(
    entries: Sequence[Entry], without: tuple[str, ...] = (), *, every_function: bool = False
) -> Figures:
    """Count the entries outside of the folders ``without``.

    Only functions that call a function of another file count, unless ``every_function``. A reader
    takes the others by their names.
    """
    entries = [
        each
        for each in entries
        if each.function.rsplit(".", 1)[-1] not in ANONYMOUS
        and not each.file.startswith(without)
        and (each.file, each.function) not in _properties()
    ]
    connecting = {each.caller for each in entries if each.caller and each.caller[0] != each.file}
    first: dict[tuple[str, str], Entry] = {}
    for each in entries:
        place = each.file, each.function
        if every_function or place in connecting:
            first.setdefault(place, each)
    order = tuple(first.values())
    runs = [file for file, _ in itertools.groupby(each.file for each in order)]
    inside = [each.file for each in order if each.file in MACHINE]
    return Figures(
        files=len(set(runs)),
        functions=len(order),
        threads=max(0, _changes(each.thread for each in order)),
        reentries=len(runs) - len(set(runs)),
        borders=max(0, _changes(inside)),
        order=order,
    )


def _changes(values: Iterable[object]) -> int:
    return len(list(itertools.groupby(values))) - 1
