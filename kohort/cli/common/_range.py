"""The options of commands that read a range of a topic, and the consumer that reads it."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from kohort.cli.common import _client
from kohort.cli.common._client import CommandError

if TYPE_CHECKING:
    from kohort import KafkaConsumer, TopicPartition
    from kohort.reading import Bounds


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of a range to a command."""
    # Otherwise argparse takes the -5m of --from for an option.
    parser._negative_number_matcher = re.compile(r"-\d")
    parser.add_argument(
        "--from",
        dest="since",
        metavar="PLACE",
        help="earliest, latest, OFFSET, a time ago such as -5m, or a time with a zone",
    )
    parser.add_argument(
        "--until", metavar="PLACE", help="end before this place, which has the forms of --from"
    )
    parser.add_argument(
        "--partition",
        action="append",
        type=_number,
        metavar="N",
        help="read this partition alone (repeatable)",
    )
    parser.add_argument(
        "--read-committed",
        action="store_true",
        help="leave out records of open and aborted transactions",
    )


def bounds_of(options: argparse.Namespace) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the range. Raise CommandError for a place."""
    from kohort.reading import find_bounds  # other commands load no client

    with _client.admin_of(options) as admin:
        try:
            return find_bounds(
                admin,
                options.topic,
                options.since or "earliest",
                options.until or "latest",
                options.partition,
                committed=options.read_committed,
                timeout_ms=options.timeout * 1000,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error


def reader_of(options: argparse.Namespace, *, reset: str) -> KafkaConsumer[bytes, bytes]:
    """Return a consumer without a group. ``reset`` is its policy for offsets that are gone."""
    from kohort import KafkaConsumer

    properties = _client.properties_of(options) | {
        "enable.auto.commit": "false",
        "auto.offset.reset": reset,
        "isolation.level": "read_committed" if options.read_committed else "read_uncommitted",
    }
    properties.pop("group.id", None)
    return KafkaConsumer.from_properties(properties, unsupported="warn")


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a partition")
    return int(text)
