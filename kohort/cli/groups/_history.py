"""``kohort groups history``: who owned which partition when, and why that changed."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli.common import _range
from kohort.cli.common._client import CommandError
from kohort.cli.common._numbers import above_zero
from kohort.cli.common._tables import wrapped

if TYPE_CHECKING:
    from kohort import KafkaAdminClient, RecordTable
    from kohort.history import GroupHistory

MOMENTS = 50
"""Past moments whose lag a picture shows."""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of a history to the command of groups."""
    history = parser.add_argument_group("history")
    history.add_argument(
        "--from", dest="since", metavar="TIME", help="a time ago such as -2h, or a time with a zone"
    )
    history.add_argument("--until", metavar="TIME", help="end of the history (now)")
    history.add_argument(
        "--sample",
        type=above_zero,
        metavar="SECONDS",
        help="ask for the present at this interval, until Ctrl-C or for --during SECONDS. It needs "
        "no right to read __consumer_offsets",
    )
    history.add_argument("--html", metavar="FILE", help="write a page with a picture to open")
    history.add_argument("--svg", metavar="FILE", help="write the picture alone")
    history.add_argument("--arrow", metavar="FILE", help="write the spans of ownership as Arrow")


def run(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    """Show the history of a group. Return the exit status."""
    from kohort.history import read_history_with

    def batches(partition: int) -> Iterator[RecordTable]:
        from kohort.reading import find_bounds, read_bounds

        wanted = [partition]
        bounds = find_bounds(admin, "__consumer_offsets", partitions=wanted, timeout_ms=timeout_ms)
        with _range.reader_of(options, reset="none") as consumer:
            yield from read_bounds(consumer, bounds, timeout_ms=timeout_ms)

    timeout_ms = options.timeout * 1000
    [group] = names
    if options.sample:
        return _write(options, _sampled(options, admin, group))
    has_picture = options.html or options.svg
    try:
        history = read_history_with(
            admin,
            batches,
            group,
            options.since or "earliest",
            options.until or "latest",
            moments=MOMENTS if has_picture else 0,
            timeout_ms=timeout_ms,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    return _write(options, history)


def _sampled(options: argparse.Namespace, admin: KafkaAdminClient, group: str) -> GroupHistory:
    """Return the history from samples of the present."""
    from kohort.history import GroupSampler

    sampler = GroupSampler(admin, group, timeout_ms=options.timeout * 1000)
    sampler.take()
    end = time.monotonic() + (options.during or math.inf)
    with suppress(KeyboardInterrupt):
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(options.sample, left))
            sampler.take()
    return sampler.history()


def _write(options: argparse.Namespace, history: GroupHistory) -> int:
    """Print a history, and write the files. Return the exit status."""
    from kohort.history import to_html, to_json, to_svg, to_text

    if options.arrow:
        _write_arrow(history, options.arrow)
    for file, made in ((options.html, to_html), (options.svg, to_svg)):
        if file:
            Path(file).write_text(made(history), encoding="utf-8")
    if options.json:
        print(to_json(history))
    else:
        print("\n".join(map(wrapped, to_text(history).splitlines())))
    return 0


def _write_arrow(history: GroupHistory, file: str) -> None:
    try:
        import pyarrow as pa
    except ImportError:
        raise CommandError("--arrow needs pyarrow: pip install 'kohort[arrow]'") from None
    from kohort.history import span_rows

    time = pa.timestamp("ms", tz="UTC")
    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "member": pa.string(),
            "name": pa.string(),
            "start": time,
            "end": time,
        }
    )
    table = pa.Table.from_pylist(list(span_rows(history)), schema=schema)
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table)
