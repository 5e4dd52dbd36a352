"""Command line of kohort."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from kohort.cli import (
    _broker,
    _completion,
    _copy,
    _dead_letters,
    _demo,
    _errors,
    _produce,
    _proxy,
    _spark_compile,
    _tail,
    _topics,
)
from kohort.cli.groups import _groups, _top
from kohort.config import VERSION
from kohort.records import decoder_choice

PIPE_CLOSED: Final = 128 + 13
"""Exit status of a program whose reader has gone, as shells show the signal SIGPIPE."""
INTERRUPTED: Final = 128 + 2
"""Exit status of a program that Ctrl-C ended, as shells show the signal SIGINT."""


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
    _proxy.add_to(commands)
    _spark_compile.add_to(commands)
    _tail.add_to(commands)
    _top.add_to(commands)
    _topics.add_to(commands)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status.

    A reader such as ``head`` may end before the command does, which is no error of the command.
    """
    try:
        try:
            options = parser().parse_args(arguments)
            status: int = options.run(options)
            return status
        finally:
            if sys.stdout is not None:  # it is None if the shell has closed it
                sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _discard_output() -> None:
    """Let the flush at the end of the process succeed, which would report the error again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _version() -> str:
    return f"kohort {VERSION} (record decoders: {decoder_choice()})"


__all__ = ["PIPE_CLOSED", "main", "parser"]
