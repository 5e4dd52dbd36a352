"""The ``kohort`` command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kohort.cli import _broker, _spark_compile
from kohort.cli.demo import _arguments as demo
from kohort.config import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="kohort", description="Kafka consumer groups: a cluster to try them on, and a demo."
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
