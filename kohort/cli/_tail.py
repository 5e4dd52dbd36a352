"""``kohort tail``: records of a topic as lines, without a group and without commits."""

from __future__ import annotations

import argparse
import base64
import heapq
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client, _range
from kohort.cli.common._numbers import whole_above_zero
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort import ConsumerRecord, KafkaConsumer, TopicPartition

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Record = ConsumerRecord[bytes, bytes]
    Offsets = dict[TopicPartition, int]

LAST = 10
"""Number of records without --from and -n."""
POLL_MS = 500
FORMAT = "%T %p:%o %k %v"
FIELDS: dict[str, Callable[[Record], str]] = {
    "t": lambda record: record.topic,
    "p": lambda record: str(record.partition),
    "o": lambda record: str(record.offset),
    "T": lambda record: time_of(record),
    "s": lambda record: str(record.timestamp),
    "k": lambda record: text_of(record.key),
    "v": lambda record: text_of(record.value),
    "h": lambda record: ",".join(f"{key}={text_of(value)}" for key, value in record.headers),
}
DESCRIPTION = f"""\
Print the last {LAST} records of a topic, by their time. With --from, print all records from a place
to the end of the topic at the start. With --follow, go on with new records until Ctrl-C.

In --format, %t is the topic, %p the partition, %o the offset and %T the time. The timestamp in ms
is %s, the key %k, the value %v, and the headers are %h. Bytes that are no text are escaped.
"""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tail",
        help="print records of a topic",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic to read")
    _range.add_to(parser)
    parser.add_argument(
        "-n",
        dest="count",
        type=whole_above_zero,
        metavar="N",
        help=f"number of records: the last N ({LAST}), or the first N of --from (all)",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new records")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--format",
        default=FORMAT,
        metavar="TEXT",
        help=f"form of a line ({FORMAT})".replace("%", "%%"),
    )
    shown.add_argument("--json", action="store_true", help="print a JSON object for each record")
    _client.add_to(parser, time_for="the look-ups")
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Print records. Return the exit status."""
    if options.follow and options.until is not None:
        parser.error("--follow has no end, so leave --until out")
    return _client.run("tail", partial(_run, options))


def _run(options: argparse.Namespace) -> int:
    starts, ends = _ends(options)
    with _range.reader_of(options, reset="latest") as consumer:
        consumer.assign(ends)
        if options.since is None:
            last = _last(consumer, starts, ends, options.count or LAST)
        else:
            last = _between(consumer, starts, ends)
        printed = _print(options, last, None if options.since is None else options.count)
        if options.follow and (options.count is None or options.since is None):
            for tp, end in ends.items():
                consumer.seek(tp, end)
            _print(options, _new(consumer), None)
        elif options.follow and options.count is not None and printed < options.count:
            for tp, end in ends.items():
                consumer.seek(tp, end)
            _print(options, _new(consumer), options.count - printed)
    return 0


def _ends(options: argparse.Namespace) -> tuple[Offsets, Offsets]:
    """Return the first offsets to read, and those to stop before."""
    found = _range.bounds_of(options)
    return (
        {tp: each.start for tp, each in found.items()},
        {tp: each.end for tp, each in found.items()},
    )


# -- reading ----------------------------------------------------------------------------------


def _last(
    consumer: KafkaConsumer[bytes, bytes], starts: Offsets, ends: Offsets, count: int
) -> Iterator[Record]:
    """Return the last records by their time.

    Holes and markers of transactions take offsets, so it goes back further while records are
    missing.
    """
    window = count
    while True:
        firsts = {tp: max(starts[tp], ends[tp] - window) for tp in ends}
        found = list(_between(consumer, firsts, ends))
        if len(found) >= count or firsts == starts:
            found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
            return iter(found[-count:])
        window *= 8


def _between(
    consumer: KafkaConsumer[bytes, bytes], starts: Offsets, ends: Offsets
) -> Iterator[Record]:
    """Yield the records of all partitions. Records that are polled together come by their time."""
    for tp, start in starts.items():
        consumer.seek(tp, start, until=ends[tp])
    left = {tp for tp in ends if starts[tp] < ends[tp]}
    while left:
        polled = consumer.poll(timeout_ms=POLL_MS)
        batches = [
            [record for record in records if record.offset < ends[tp]]
            for tp, records in polled.items()
        ]
        yield from heapq.merge(*batches, key=lambda record: record.timestamp)
        left = {tp for tp in left if consumer.position(tp) < ends[tp]}


def _new(consumer: KafkaConsumer[bytes, bytes]) -> Iterator[Record]:
    while True:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            yield from records


# -- printing ---------------------------------------------------------------------------------


def _print(options: argparse.Namespace, records: Iterator[Record], count: int | None) -> int:
    """Print at most ``count`` records, and return their number."""
    line = _json_line if options.json else partial(formatted, options.format)
    printed = 0
    for record in records:
        print(line(record), flush=options.follow)
        printed += 1
        if printed == count:
            break
    sys.stdout.flush()
    return printed


def formatted(form: str, record: Record) -> str:
    """Return the line of a record. A letter that is no field stays as it is."""
    return re.sub(
        r"%(.)",
        lambda match: FIELDS[match[1]](record) if match[1] in FIELDS else match[1],
        form,
    )


def time_of(record: Record) -> str:
    """Return the timestamp in ISO format, or ``-`` without one."""
    if record.timestamp < 0:
        return "-"
    when = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(data: bytes | None) -> str:
    """Return bytes as text that does not control a terminal, or ``-`` for null."""
    if data is None:
        return "-"
    try:
        return escaped(data.decode())
    except UnicodeDecodeError:
        return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def _json_line(record: Record) -> str:
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[key, _json_bytes(value)] for key, value in record.headers],
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
    }
    return json.dumps(found, ensure_ascii=False)


def _json_bytes(data: bytes | None) -> Any:
    """Return text, null, or an object with base64 for bytes that are no text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
