"""The inner loop, ``make quick``: style, types, tests of what changed, and some simulated lives.

What changed is what differs from the branch ``main``, or from the commit before on that branch.
The steps run side by side. Output is printed of steps that fail, and the time of all.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BIN: Final = Path(sys.executable).parent
SEEDS: Final = 40
LEFT_OUT: Final = (
    "slow or long or real_kafka or old_kafka or kerberos or spark or spark_source or typing or "
    "interop"
)
"""Markers of tests that are left out."""


class Step(NamedTuple):
    """One program of the loop."""

    name: str
    command: list[str]


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed_files() -> set[str]:
    """Return the paths from the root of files that changed, or are new."""
    [base] = git("merge-base", "HEAD", "main")
    if [base] == git("rev-parse", "HEAD") and not git("status", "--porcelain"):
        base = "HEAD~1"
    return {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}


def chosen_tests(changed: Collection[str]) -> list[str]:
    """Return the test files of changed files.

    A module that no test names has the tests of its room, or of its package without a room. Tests
    that need a cluster in real time are left out then.
    """
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    found = {path for path in texts if str(path.relative_to(ROOT)) in changed}
    for module in (Path(name) for name in changed if name.startswith("kohort/")):
        name = module.stem.lstrip("_")
        dotted = re.compile(rf"\b{re.escape('.'.join(module.with_suffix('').parts))}\b")
        package, room = (ROOT / "tests" / Path(*module.parts[1:end]) for end in (2, 3))
        found |= {
            path
            for path, text in texts.items()
            if dotted.search(text) or (path.stem == f"test_{name}" and path.is_relative_to(package))
        } or {
            path
            for path, text in texts.items()
            if path.is_relative_to(room if room.is_dir() else package)
            and "import Cluster" not in text
        }
    return sorted(map(str, found))


def steps(arguments: Iterable[str] = ()) -> list[Step]:
    """Return the steps. The arguments are added to those of pytest."""
    python, ruff, mypy = (str(BIN / name) for name in ("python", "ruff", "mypy"))
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    # Only with the compiled decoder and asyncio. `make test` also runs pure Python and trio.
    pytest += ["-k", "not pure and not trio", "-m", f"not ({LEFT_OUT})"]
    tests = chosen_tests(changed_files())
    return [
        Step("ruff check", [ruff, "check", "."]),
        Step("ruff format", [ruff, "format", "--check", "."]),
        Step("prose", [python, "-m", "tools.prose"]),
        Step("mypy", [mypy]),
        *([Step("pytest", [*pytest, *tests, *arguments])] if tests else []),
        Step("seeds", [python, "-m", "tests.simulation", "--seeds", str(SEEDS), "--jobs", "1"]),
    ]


def main(arguments: list[str]) -> int:
    """Run all steps. Return 1 if one fails."""
    start = time.monotonic()
    running = {
        step.name: subprocess.Popen(
            step.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for step in steps(arguments)
    }
    failed = []
    for name, process in running.items():
        output, _ = process.communicate()
        # pytest ends with 5 if the markers leave no test.
        if process.returncode and (name, process.returncode) != ("pytest", 5):
            failed.append(name)
            print(output)
        else:
            print(f"{name}: {output.strip().splitlines()[-1] if output.strip() else 'ok'}")
    print(
        f"quick: {time.monotonic() - start:.0f} s" + "".join(f", {name} failed" for name in failed)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
