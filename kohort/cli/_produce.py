"""``kohort produce``: records from lines of a file or of the standard input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kohort.cli.common import _client
from kohort.cli.common._client import CommandError
from kohort.types import NamedTuple

if TYPE_CHECKING:
    from kohort import KafkaConsumer

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CHUNK_BYTES = 1 << 20
NOW = -1
FIELDS = {"key", "value", "headers", "partition", "timestamp"}
DESCRIPTION = """\
Produce a record for each line of a file or of the standard input. A record counts when all replicas
in sync have it. Records of a partition keep the order of the lines. A repeated request does not
duplicate them.

With --json a line is an object with the fields value, key, headers, partition and timestamp, which
are optional. Texts become UTF-8, null stays null, and other values become JSON. The headers are an
object or a list of pairs.
"""


class Line(NamedTuple):
    """The record of one line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int = NOW


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "produce",
        help="produce records from lines of text or JSON",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic of the records")
    parser.add_argument("file", nargs="?", metavar="FILE", help="file of lines (standard input)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--key-separator", metavar="TEXT", help="text between the key and the value of a line"
    )
    kind.add_argument("--json", action="store_true", help="read each line as a JSON object")
    parser.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        metavar="NAME=VALUE",
        help="header of all records, may be repeated",
    )
    parser.add_argument(
        "--partition",
        type=_partition,
        metavar="N",
        help="partition of all records (by the key, as Kafka's producer does)",
    )
    _client.add_to(parser, time_for="the delivery of a record")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Produce the lines. Return 1 on failure."""
    return _client.run("produce", partial(_run, options))


def _run(options: argparse.Namespace) -> int:
    if options.file is None:
        return _produce(options, sys.stdin.buffer)
    with Path(options.file).open("rb") as source:
        return _produce(options, source)


def _produce(options: argparse.Namespace, source: BinaryIO) -> int:
    """Produce chunks of lines. This thread reads them, and the consumer thread sends them."""
    from kohort import KafkaConsumer  # other commands do not load the client

    parse, produced = _parser_of(options), 0
    partitions = len(_client.partitions_of(options))
    properties = _client.properties_of(options)
    with KafkaConsumer.from_properties(properties, unsupported="warn") as consumer:
        for lines in _chunks(source):
            records: list[Line] = []
            wrong: CommandError | None = None
            for text in lines:
                try:
                    records.append(_checked(parse(text), options.partition, partitions))
                except ValueError as error:
                    wrong = CommandError(
                        f"line {produced + len(records) + 1} is no record of {options.topic}: "
                        f"{error}. The lines before it are produced"
                    )
                    break
            send = partial(_send, consumer, options, records, partitions)
            consumer._driver.call_without_limit(send)
            produced += len(records)
            if wrong is not None:
                raise wrong
    print(f"{produced} {'record' if produced == 1 else 'records'} produced to {options.topic}")
    return 0


async def _send(
    consumer: KafkaConsumer[bytes, bytes],
    options: argparse.Namespace,
    records: list[Line],
    partitions: int,
) -> None:
    """Post records in their order, and wait until all are acknowledged."""
    from kohort.producer import NewRecord

    producer, posted = _client.producer_of(consumer), []
    for line in records:
        partition = line.partition
        if partition is None:
            partition = producer.partition_of(line.key, partitions)
        record = NewRecord(line.timestamp, line.key, line.value, line.headers)
        posted.append(producer.post(options.topic, partition, record, timeout=options.timeout))
    for each in posted:
        await each.wait()


def _checked(line: Line, default: int | None, partitions: int) -> Line:
    """Return a record with the partition of the options, if it has none."""
    if line.partition is None:
        line = line._replace(partition=default)
    if line.partition is not None and line.partition >= partitions:
        raise ValueError(f"partition {line.partition} is not one of 0 to {partitions - 1}")
    return line


def _chunks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they come, without their ends."""
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    rest = b""
    while chunk := read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


def _parser_of(options: argparse.Namespace) -> Callable[[bytes], Line]:
    """Return the function that makes a record of a line. It raises ValueError."""
    headers = tuple(options.header)
    if options.json:
        return partial(_json_line, headers)
    if options.key_separator is None:
        return lambda text: Line(None, text, headers)
    separator = options.key_separator.encode()
    if not separator:
        raise CommandError("--key-separator is empty. Give a text that no key has")

    def keyed(text: bytes) -> Line:
        key, found, value = text.partition(separator)
        if not found:
            raise ValueError(f"it has no {options.key_separator!r}")
        return Line(key, value, headers)

    return keyed


def _json_line(headers: tuple[tuple[str, bytes | None], ...], text: bytes) -> Line:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    if unknown := found.keys() - FIELDS:
        raise ValueError(f"unknown field {min(unknown)!r}")
    own = found.get("headers", {})
    pairs = list(own.items()) if isinstance(own, dict) else own
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    ):
        raise ValueError("headers must be an object or a list of pairs of name and value")
    partition, timestamp = found.get("partition"), found.get("timestamp", NOW)
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError("partition must be a whole number")
    if type(timestamp) is not int or timestamp < NOW:
        raise ValueError("timestamp must be milliseconds since 1970")
    all_headers = (*((name, _bytes(value)) for name, value in pairs), *headers)
    key, value = _bytes(found.get("key")), _bytes(found.get("value"))
    return Line(key, value, all_headers, partition, timestamp)


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode()


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value.encode()


def _partition(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a partition")
    return int(text)
