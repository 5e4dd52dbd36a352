"""The options by which commands connect to a cluster, and a consumer with these options."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.cli.common._numbers import above_zero
from kohort.config.properties import read_properties
from kohort.errors import BrokerResponseError, KafkaError
from kohort.logs import get_logger

if TYPE_CHECKING:
    from kohort import AsyncKafkaConsumer, KafkaAdminClient, KafkaConsumer
    from kohort.producer import RecordProducer

SERVERS = "localhost:9092"
SERVERS_VARIABLE, PROPERTIES_VARIABLE = "KOHORT_BOOTSTRAP_SERVERS", "KOHORT_PROPERTIES"
"""Environment variables in place of the options of the same names."""


class CommandError(Exception):
    """A reason why a command cannot go on."""


def add_to(parser: argparse.ArgumentParser, *, time_for: str) -> None:
    """Add the options of a connection to a command. Its timeout is the time for ``time_for``."""
    parser.add_argument(
        "--timeout",
        type=above_zero,
        default=30.0,
        metavar="SECONDS",
        help=f"longest time for {time_for} (%(default)s)",
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help=f"addresses of brokers ({SERVERS}, or those of --properties or of the environment "
        f"variable {SERVERS_VARIABLE})",
    )
    parser.add_argument(
        "--properties",
        metavar="FILE",
        help="options of a client such as security.protocol=SSL, in a file of Java properties "
        f"(the one that {PROPERTIES_VARIABLE} names)",
    )


def properties_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the connection, by their dotted names.

    Create a consumer of them with ``unsupported="warn"``, because a file for another program may
    have options of producers.
    """
    given: dict[str, Any] = {"bootstrap.servers": SERVERS}
    file = options.properties or os.environ.get(PROPERTIES_VARIABLE)
    if file:
        given |= read_properties(Path(file).read_text(encoding="utf-8"))
    servers = options.bootstrap_servers or os.environ.get(SERVERS_VARIABLE)
    if servers:
        given["bootstrap.servers"] = servers
    return given


def admin_of(options: argparse.Namespace) -> KafkaAdminClient:
    """Return an admin client with the options of the connection.

    A wrong address is an error as soon as each server has failed once.
    """
    from kohort import KafkaAdminClient  # other commands do not load it

    return KafkaAdminClient._from_properties(properties_of(options), "warn", bootstrap_timeout_ms=0)


def scope_of(options: argparse.Namespace) -> str:
    """Return the end of the text of an empty list, which lacks what a user may not describe."""
    has_user = properties_of(options).get("security.protocol", "PLAINTEXT") != "PLAINTEXT"
    return " that this user may describe" if has_user else ""


def producer_of(consumer: AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any]) -> RecordProducer:
    """Return the producer over the connections of a started consumer, in its event loop."""
    return consumer._driver.engine.producer()


def partitions_of(options: argparse.Namespace) -> list[int]:
    """Return the numbers of the partitions of the topic. Raise the error of a missing one."""
    with admin_of(options) as admin:
        found = admin.describe_topics(options.topic, options.timeout * 1000)[options.topic]
    return [each.partition for each in found.partitions]


def run(name: str, command: Callable[[], int]) -> int:
    """Run a command. Print its error and return 1 if it fails."""
    # The error has the text of these warnings. Python prints them if there is no handler.
    get_logger("kohort.transport").addHandler(logging.NullHandler())
    try:
        return command()
    except BrokenPipeError:
        raise  # of stdout, because those of connections are errors of kohort
    except (CommandError, KafkaError, OSError, UnicodeDecodeError) as error:
        print(f"kohort {name}: {text_of(error)}", file=sys.stderr)
        return 1


def text_of(error: Exception) -> str:
    """Return the text of an error, without the number of an error of the system.

    The advice for a consumer is left out. A command has ended, and it may need less than READ.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = str(error)
    if isinstance(error, BrokerResponseError) and error.advice:
        text = text.removesuffix(f". {error.advice}")
    return text
