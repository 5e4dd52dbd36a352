"""Options of ``kohort broker`` and ``kohort proxy`` for fault injection."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kohort.cli.common._numbers import above_zero, chance, whole_above_zero
from kohort.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.testing import Cluster, Proxy


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of the command."""
    faults = parser.add_argument_group("faults", "fault injection, repeatable with the same --seed")
    faults.add_argument(
        "--fail",
        action="append",
        type=_failure,
        default=[],
        metavar="API=ERROR[@CHANCE]",
        help="respond with an error: JoinGroup=COORDINATOR_LOAD_IN_PROGRESS@0.1",
    )
    faults.add_argument(
        "--delay",
        action="append",
        type=_delay,
        default=[],
        metavar="API=SECONDS",
        help="delay responses: Fetch=0.5",
    )
    faults.add_argument(
        "--disconnect",
        type=chance,
        metavar="CHANCE",
        help="probability of a disconnect instead of a response",
    )
    faults.add_argument(
        "--slow",
        type=above_zero,
        metavar="BYTES",
        help="bytes of a response sent per second",
    )
    faults.add_argument(
        "--fragment",
        type=whole_above_zero,
        metavar="BYTES",
        help="largest piece in which responses are sent",
    )
    faults.add_argument(
        "--seed",
        type=int,
        help="random seed, with which kohort broker repeats the cluster id and topic ids, too",
    )


def apply(options: argparse.Namespace, cluster: Cluster | Proxy) -> None:
    """Inject the faults of the options. Raise InvalidOptionError for an unknown API."""
    for api, error, share in options.fail:
        cluster.fail(api, error, times=None, chance=share)
    for api, seconds in options.delay:
        cluster.delay(api, seconds)
    if options.disconnect:
        cluster.disconnect(times=None, chance=options.disconnect)
    if options.slow or options.fragment:
        cluster.slow(options.slow or 0, piece=options.fragment or 1024)


def _failure(text: str) -> tuple[str, ErrorCode, float]:
    api, _, rest = text.partition("=")
    name, at, share = rest.partition("@")
    if name not in ErrorCode.__members__ or not api:
        raise argparse.ArgumentTypeError(f"{text!r} is not API=ERROR with a Kafka error code")
    return api, ErrorCode[name], chance(share) if at else 1.0


def _delay(text: str) -> tuple[str, float]:
    api, _, seconds = text.partition("=")
    return api, above_zero(seconds)
