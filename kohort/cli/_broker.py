"""Command ``kohort broker``, which runs the in-process cluster until it is interrupted."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli import _faults
from kohort.cli.common._numbers import port, whole_above_zero
from kohort.errors import InvalidOptionError

if TYPE_CHECKING:
    from kohort.testing import Cluster

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "broker",
        help="run a Kafka-compatible cluster in this process, for trials and tests",
        description="Run a Kafka-compatible cluster in memory until interrupted. The first broker "
        "listens on --port, and the others on the following ports.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port",
        type=port,
        default=9092,
        help="port of the first broker (%(default)s), or 0 for a free one",
    )
    parser.add_argument(
        "--advertised-host", metavar="HOST", help="host name that clients connect to (--host)"
    )
    parser.add_argument(
        "--brokers", type=whole_above_zero, default=1, help="number of brokers (%(default)s)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        type=_topic,
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="topic to create at the start, may be repeated",
    )
    parser.add_argument(
        "--default-partitions",
        type=whole_above_zero,
        default=1,
        metavar="N",
        help="partitions of topics that are created on first use (%(default)s)",
    )
    parser.add_argument(
        "--no-auto-create", action="store_true", help="do not create topics on first use"
    )
    parser.add_argument(
        "--config",
        action="append",
        type=_config,
        default=[],
        metavar="NAME=VALUE",
        help="broker config such as group.min.session.timeout.ms=500, may be repeated",
    )
    parser.add_argument(
        "--properties",
        metavar="FILE",
        help="broker configs and listeners (TLS, SASL) from a file; --config overrides it",
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="file of PLAIN and SCRAM users, one NAME=PASSWORD per line",
    )
    parser.add_argument(
        "--schema-registry",
        nargs="?",
        type=port,
        const=8081,
        metavar="PORT",
        help="also serve a schema registry, on this port (%(const)s), or 0 for a free one",
    )
    parser.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="FILE",
        help="file of `kohort copy` whose records are there at the start (repeatable)",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        help="file to write when clients can connect: JSON with bootstrap_servers and pid",
    )
    parser.add_argument(
        "--print-json", action="store_true", help="print the addresses as one line of JSON"
    )
    _faults.add_to(parser)
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM. Return 1 on failure, or 2 if an option is wrong."""
    from kohort.testing import serve  # other commands do not load the cluster

    try:
        return serve(
            host=options.host,
            port=options.port,
            brokers=options.brokers,
            topics=dict(options.topic),
            default_partitions=options.default_partitions,
            advertised_host=options.advertised_host,
            auto_create_topics=not options.no_auto_create,
            configs=dict(options.config),
            properties=options.properties,
            users=options.users,
            seed=options.seed,
            schema_registry=_registry_port(options.schema_registry),
            print_json=options.print_json,
            prepare=partial(_prepare, options),
        )
    except InvalidOptionError as error:
        parser.exit(2, f"kohort broker: {error}\n")
    except _UnreadableFileError as error:
        print(f"kohort broker: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        hint = "choose another --port, or 0 for a free one"
        print(f"kohort broker: {error.strerror}; {hint}", file=sys.stderr)
        return 1


class _UnreadableFileError(Exception):
    """A file of --load that cannot be read."""


def _prepare(options: argparse.Namespace, cluster: Cluster) -> None:
    """Load the files, begin the faults, and say that the cluster is ready."""
    for file in options.load:
        try:
            cluster.load(file)
        except (OSError, ValueError, ImportError) as error:
            raise _UnreadableFileError(f"--load {file}: {error}") from error
    _faults.apply(options, cluster)
    if options.ready_file:
        found = {"bootstrap_servers": cluster.bootstrap_servers, "pid": os.getpid()}
        new = Path(f"{options.ready_file}.new")
        new.write_text(json.dumps(found), encoding="utf-8")
        new.replace(options.ready_file)  # a reader never sees half of it


def _registry_port(given: int | None) -> bool | int:
    return False if given is None else given or True


def _topic(text: str) -> tuple[str, int | None]:
    name, colon, count = text.partition(":")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} has no topic name")
    return name, whole_above_zero(count) if colon else None


def _config(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if re.search(r"password|jaas|secret|passphrase|keystore\.key", name, re.IGNORECASE):
        # Other users of the machine see the arguments of a process.
        raise argparse.ArgumentTypeError(
            f"{name.strip()} is a secret: set it in the file of --properties"
        )
    return name.strip(), value.strip()
