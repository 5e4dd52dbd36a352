"""Command ``python -m tools.release``, which is ``make release-check``. It uploads nothing."""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from tools.release import builds, checks, installs, placeholders, pythons, suites
from tools.release.commands import DIST, WORK, Row
from tools.release.pythons import Interpreter

PARTS: Final = (
    "build",
    "musl",
    "reproducible",
    "metadata",
    "install",
    "tests",
    "materials",
    "workflows",
    "placeholders",
)
NEED_FILES: Final = {"musl", "reproducible", "metadata", "install", "tests", "materials"}
"""Parts that need the files of the part ``build``."""
ELSEWHERE: Final = ("Linux on 64-bit ARM", "macOS", "Windows")


def rows(parts: Iterable[str], found: list[Interpreter]) -> Iterator[Row]:
    """Run the parts in their order, and yield the rows of the report."""
    if "build" in parts:
        yield from builds.build(found)
    if NEED_FILES & set(parts) and not list(DIST.glob("*.tar.gz")):
        yield Row("the parts after build", "all", False, f"{DIST} has no source distribution")
        return
    if "musl" in parts:
        yield from builds.build_musl(found)
    if "reproducible" in parts:
        yield from builds.check_reproducible(found)
    if "metadata" in parts:
        yield from checks.check_metadata()
    if "install" in parts:
        yield from installs.check_installs(found)
    if "tests" in parts:
        yield from suites.check_tests(found)
    if "materials" in parts:
        yield from checks.check_materials(found[-1] if not found[-1].musl else found[0])
    if "workflows" in parts:
        yield from checks.check_workflows()
    if "placeholders" in parts:
        yield from placeholders.list_placeholders()


def not_here(
    everything: list[Interpreter], found: list[Interpreter], parts: Iterable[str]
) -> Iterator[Row]:
    """Yield a row for each part, interpreter and system that was not tried."""
    for part in PARTS:
        if part not in parts:
            yield Row(part, "part", None, "left out by the options")
    for each in everything:
        if each not in found:
            yield Row(f"CPython {each}", "interpreter", None, "left out by the options")
    for name in pythons.missing(everything):
        yield Row(f"CPython {name}", "interpreter", None, "not found: put it on the path")
    for name in ELSEWHERE:
        yield Row(name, "all", None, "hosted runners only")


def report(found: list[Row]) -> str:
    """Return the rows as one table."""
    marks = {True: "ok", False: "FAILED", None: "-"}
    first = max((len(row.subject) for row in found), default=0)
    second = max((len(row.check) for row in found), default=0)
    lines = []
    for row in found:
        head = f"{marks[row.ok]:6}  {row.subject:{first}}  {row.check:{second}}  "
        text, *more = row.result.splitlines() or [""]
        lines.append(f"{head}{text}".rstrip())
        lines += [textwrap.indent(line, " " * 10) for line in more]
    return "\n".join(lines)


def closing(found: list[Row]) -> str:
    """Return the tables of what was checked, of what was not, and of the placeholders."""
    marked = [row for row in found if row.check == placeholders.CHECK]
    tried = [row for row in found if row.ok is not None and row not in marked]
    left = [row for row in found if row.ok is None and row not in marked]
    tables = (
        ("Checked", tried),
        ("Not checked", left),
        ("Placeholders, which a person replaces before a release", marked),
    )
    return "\n\n".join(f"{title}\n{report(some)}" for title, some in tables if some)


def main(arguments: list[str]) -> int:
    """Run the check. Return 1 if a part of it failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--skip", nargs="+", choices=PARTS, default=[], metavar="PART")
    parser.add_argument("--python", nargs="+", default=[], metavar="VERSION", help="such as 3.13")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    everything = pythons.interpreters()
    print(
        "interpreters:", *(f"{each} ({each.path})" for each in everything), sep="\n  ", flush=True
    )
    wanted = options.python or pythons.SUPPORTED
    chosen = [each for each in everything if each.version in wanted]
    if not chosen:
        parser.error(f"no interpreter of {', '.join(wanted)} is here")
    parts = [part for part in options.only if part not in options.skip]
    found = []
    for row in chain(rows(parts, chosen), not_here(everything, chosen, parts)):
        print(report([row]), flush=True)
        found.append(row)
    text = closing(found)
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "report.txt").write_text(text + "\n")
    failed = sum(row.ok is False for row in found)
    untried = sum(row.ok is None and row.check != placeholders.CHECK for row in found)
    print(f"\n{text}\n")
    print(f"{DIST} has what would be uploaded; {WORK / 'report.txt'} has this report")
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    passed = sum(row.ok is True for row in found)
    counts = f"{passed} passed, {failed} failed, {untried} not tried"
    print(f"release-check: {counts}, in {minutes} min {seconds} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
