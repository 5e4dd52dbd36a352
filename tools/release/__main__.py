"""Command ``python -m tools.release``, which is ``make release-check``. It uploads nothing."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tools.release import builds, checks, installs, placeholders
from tools.release.commands import DIST, WORK, ProgramFailedError, Row, interpreters

PARTS: Final = ("build", "musl", "metadata", "install", "tests", "workflows", "placeholders")


def rows(parts: Iterable[str], pythons: dict[str, Path]) -> Iterator[Row]:
    """Run the parts in their order, and yield the rows of the report."""
    if "build" in parts:
        yield from builds.build_sdist()
        if not list(DIST.glob("*.tar.gz")):
            return
        yield from builds.build_pure()
        for version, python in pythons.items():
            yield from builds.build_compiled(version, python)
    if "musl" in parts:
        for version, python in pythons.items():
            yield from builds.build_musl(version, python)
        yield Row("wheels for musl", "install", None, "not tried: no interpreter for musl is here")
    if "metadata" in parts:
        yield from checks.check_metadata()
    if "install" in parts:
        yield from _installs(pythons)
    if "tests" in parts:
        for version, python in list(pythons.items())[:1]:
            for wheel in installs.distributions("compiled", version):
                yield from installs.run_tests(version, python, wheel)
    if "workflows" in parts:
        yield from checks.check_workflows()
    if "placeholders" in parts:
        yield from placeholders.list_placeholders()


def _installs(pythons: dict[str, Path]) -> Iterator[Row]:
    for version, python in pythons.items():
        try:
            installs.collect(version, python)
        except ProgramFailedError as error:
            yield Row(f"dependencies, {version}", "download", False, str(error))
            continue
        for kind in ("compiled", "plain", "no compiler"):
            for file in installs.distributions(kind, version):
                yield from installs.install_and_read(kind, version, python, "newest", file)
                if kind != "no compiler":
                    yield from installs.install_and_read(kind, version, python, "lowest", file)


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


def main(arguments: list[str]) -> int:
    """Run the check. Return 1 if a part of it failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--skip", nargs="+", choices=PARTS, default=[], metavar="PART")
    parser.add_argument("--python", nargs="+", default=[], metavar="VERSION", help="such as 3.13")
    options = parser.parse_args(arguments)
    pythons = interpreters()
    chosen = {each: pythons[each] for each in options.python} if options.python else pythons
    parts = [part for part in options.only if part not in options.skip]
    found = []
    for row in rows(parts, chosen):
        print(report([row]), flush=True)
        found.append(row)
    text = report(found)
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "report.txt").write_text(text + "\n")
    failed = sum(row.ok is False for row in found)
    print(f"\n{text}\n\nrelease-check: {len(found)} rows, {failed} failed")
    print(f"{DIST} has what would be uploaded")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
