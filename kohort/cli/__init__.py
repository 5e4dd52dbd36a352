"""Command line of kohort."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kohort.cli import (
    _broker,
    _completion,
    _copy,
    _dead_letters,
    _demo,
    _errors,
    _groups,
    _produce,
    _spark_compile,
    _tail,
    _top,
    _topics,
)
from kohort.config import VERSION
from kohort.records import decoder_choice


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command, with all its subcommands."""
    found = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,  # the version stays one line
        prog="kohort",
        description="Kafka consumer groups: an in-process cluster, a demo, and tools.",
    )
    found.add_argument("--version", action="version", version=_version())
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _broker.add_to(commands)
    _completion.add_to(commands)
    _copy.add_to(commands)
    _dead_letters.add_to(commands)
    _demo.add_to(commands)
    _errors.add_to(commands)
    _groups.add_to(commands)
    _produce.add_to(commands)
    _spark_compile.add_to(commands)
    _tail.add_to(commands)
    _top.add_to(commands)
    _topics.add_to(commands)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def _version() -> str:
    return f"kohort {VERSION} (record decoders: {decoder_choice()})"


__all__ = ["main", "parser"]
