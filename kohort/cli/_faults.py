"""The options of ``kohort broker`` that make its cluster misbehave."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.testing import Cluster


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of the command."""
    faults = parser.add_argument_group("faults", "what goes wrong, by --seed always the same")
    faults.add_argument(
        "--fail",
        action="append",
        type=_failure,
        default=[],
        metavar="API=ERROR[@CHANCE]",
        help="answer requests with an error: JoinGroup=COORDINATOR_LOAD_IN_PROGRESS@0.1",
    )
    faults.add_argument(
        "--delay",
        action="append",
        type=_delay,
        default=[],
        metavar="API=SECONDS",
        help="let requests wait: Fetch=0.5",
    )
    faults.add_argument(
        "--disconnect", type=_chance, metavar="CHANCE", help="end connections instead of answering"
    )
    faults.add_argument(
        "--slow", type=_positive, metavar="BYTES", help="send so many bytes of an answer a second"
    )
    faults.add_argument(
        "--fragment", type=_positive, metavar="BYTES", help="send answers in pieces up to this size"
    )
    faults.add_argument("--seed", type=int, default=0, help="of all that is random (%(default)s)")


def apply(options: argparse.Namespace, cluster: Cluster) -> None:
    """Do as the options say; InvalidOptionError for an API that is not."""
    for api, error, chance in options.fail:
        cluster.fail(api, error, times=None, chance=chance)
    for api, seconds in options.delay:
        cluster.delay(api, seconds)
    if options.disconnect:
        cluster.disconnect(times=None, chance=options.disconnect)
    if options.slow or options.fragment:
        cluster.slow(options.slow or 0, piece=int(options.fragment or 1024))


def _failure(text: str) -> tuple[str, ErrorCode, float]:
    api, _, rest = text.partition("=")
    name, at, chance = rest.partition("@")
    if name not in ErrorCode.__members__ or not api:
        raise argparse.ArgumentTypeError(f"{text!r} is not API=ERROR with an error of Kafka's")
    return api, ErrorCode[name], _chance(chance) if at else 1.0


def _delay(text: str) -> tuple[str, float]:
    api, _, seconds = text.partition("=")
    return api, _positive(seconds)


def _chance(text: str) -> float:
    chance = _positive(text)
    if chance > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a chance: above 0, up to 1")
    return chance


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
