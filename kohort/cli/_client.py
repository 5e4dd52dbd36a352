"""The options by which commands connect to a cluster, and a consumer with these options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.errors import KafkaError

if TYPE_CHECKING:
    from kohort import AsyncKafkaConsumer, KafkaConsumer
    from kohort.producer import RecordProducer

SERVERS = "localhost:9092"


class CommandError(Exception):
    """A reason why a command cannot go on."""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of a connection to a command."""
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help=f"addresses of brokers ({SERVERS}, or those of --properties)",
    )
    parser.add_argument(
        "--properties",
        metavar="FILE",
        help="options of a client such as security.protocol=SSL, in a file of Java properties",
    )


def properties_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the connection, by their dotted names.

    Create a consumer of them with ``unsupported="warn"``, because a file for another program may
    have options of producers.
    """
    given: dict[str, Any] = {"bootstrap.servers": SERVERS}
    if options.properties is not None:
        from kohort.testing.properties import read_properties  # few commands need the package

        given |= read_properties(Path(options.properties).read_text(encoding="utf-8"))
    if options.bootstrap_servers is not None:
        given["bootstrap.servers"] = options.bootstrap_servers
    return given


def producer_of(consumer: AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any]) -> RecordProducer:
    """Return the producer over the connections of a started consumer, in its event loop."""
    return consumer._driver.engine.producer()


def run(name: str, command: Callable[[], int]) -> int:
    """Run a command. Print its error and return 1 if it fails."""
    try:
        return command()
    except (CommandError, KafkaError, OSError, UnicodeDecodeError) as error:
        print(f"kohort {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
