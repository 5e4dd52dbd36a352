"""Command line of kohort."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kohort.cli import _broker, _spark_compile
from kohort.cli.demo import _arguments as demo
from kohort.config import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="kohort",
        description="Kafka consumer groups: an in-process cluster, a demo, and tools.",
    )
    parser.add_argument("--version", action="version", version=f"kohort {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _broker.add_to(commands)
    demo.add_to(commands)
    _spark_compile.add_to(commands)
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


__all__ = ["main"]
