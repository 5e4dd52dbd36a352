"""The inner loop, ``make quick``: style, types, the quick tests and some simulated lives.

The steps run side by side. Output is printed of steps that fail, and the time of all.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BIN: Final = Path(sys.executable).parent
SEEDS: Final = 40
LEFT_OUT: Final = "slow or long or real_kafka or old_kafka or kerberos or spark or spark_source"
"""Markers of tests that are left out, with ``typing`` and ``interop``."""
FOLDERS: Final = (
    "config",
    "coordinator_client",
    "fetcher",
    "listeners",
    "protocol",
    "records",
    "subscription",
    "transport",
)
FILES: Final = {
    "broker": ("fetch", "hashes", "produce"),
    "broker/groups": ("group_errors", "group_join", "group_records", "group_static", "timers"),
    "broker/log": ("log",),
    "consumer": (  # those on a virtual clock
        *("cooperative", "first_poll", "iteration_rebalances"),
        *("last_commits", "leaving", "liveness", "loop_turns", "membership_errors"),
        *("sessions", "skipped_epochs", "static_members", "triggers", "truncation"),
    ),
    "house": (
        *("circles", "layers", "log_arguments", "modules", "options_are_used"),
        *("public_names", "second_defaults", "secrets_are_revealed"),
    ),
}
"""Folder to the quick ones of its files, by the name after ``test_``."""


class Step(NamedTuple):
    """One program of the loop."""

    name: str
    command: list[str]


def quick_tests() -> list[str]:
    """Return the folders and files of the quick tests."""
    files = [f"tests/{folder}/test_{name}.py" for folder in FILES for name in FILES[folder]]
    return [*(f"tests/{folder}" for folder in FOLDERS), *files]


def steps(arguments: Iterable[str] = ()) -> list[Step]:
    """Return the steps. The arguments are added to those of pytest."""
    python, ruff, mypy = (str(BIN / name) for name in ("python", "ruff", "mypy"))
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    # Only with the compiled decoder and asyncio. `make test` also runs pure Python and trio.
    pytest += ["-k", "not pure and not trio", "-m", f"not ({LEFT_OUT} or typing or interop)"]
    return [
        Step("ruff check", [ruff, "check", "."]),
        Step("ruff format", [ruff, "format", "--check", "."]),
        Step("prose", [python, "-m", "tools.prose"]),
        Step("mypy", [mypy]),
        Step("pytest", [*pytest, *quick_tests(), *arguments]),
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
        if process.returncode:
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
