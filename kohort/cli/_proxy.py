"""``kohort proxy``: faults between clients and a cluster such as Apache Kafka."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from kohort.cli import _faults
from kohort.cli.common import _client
from kohort.cli.common._client import CommandError
from kohort.cli.common._numbers import port
from kohort.errors import InvalidOptionError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Forward the requests of clients to a cluster such as Apache Kafka, and inject faults on the way.
Each broker of the cluster gets a listener, and clients find the others by the first one.

The cluster and the clients are reached without TLS and login.
"""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "proxy",
        help="inject faults between clients and a cluster",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--to", required=True, metavar="HOST:PORT,...", help="addresses of brokers of the cluster"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port",
        type=port,
        default=0,
        help="port of the first broker, the others use the next ones (free ports)",
    )
    parser.add_argument(
        "--advertised-host", metavar="HOST", help="host name that clients connect to (--host)"
    )
    _faults.add_to(parser)
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Forward until Ctrl-C or SIGTERM. Return 1 on failure, or 2 if an option is wrong."""
    return _client.run("proxy", partial(_run, parser, options))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from kohort.testing import Proxy  # other commands do not load the cluster
    from kohort.testing.signals import stop_event

    with ExitStack() as ending:
        stop = ending.enter_context(stop_event())
        try:
            proxy = Proxy(
                options.to,
                host=options.host,
                ports=options.port or None,
                advertised_host=options.advertised_host,
                seed=options.seed,
            )
            ending.enter_context(proxy)
            _faults.apply(options, proxy)
        except OSError as error:
            raise CommandError(error.strerror or str(error)) from error
        except InvalidOptionError as error:
            parser.exit(2, f"kohort proxy: {error}\n")
        print(f"listening on {proxy.bootstrap_servers}", flush=True)
        stop.wait()
    return 0
