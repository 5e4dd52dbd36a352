"""``kohort top``: groups by their lag, with the rates at which they read and topics grow.

A look is the lag of all groups at one moment. Rates come from two looks. Members commit every few
seconds, so the first look is about :data:`WINDOW` seconds older. Otherwise a rate would be 0 in
one look and too high in the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client
from kohort.cli.common._numbers import above_zero, whole_above_zero
from kohort.cli.common._tables import duration, number, render
from kohort.cli.groups._groups import SHARE, WITH_LAG, errors_within
from kohort.errors import GroupIdNotFoundError, KafkaError
from kohort.types import NamedTuple, escaped

if TYPE_CHECKING:
    from kohort import KafkaAdminClient
    from kohort.admin import GroupLag, PartitionLag

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    _Pair = tuple[int | None, int | None]

INTERVAL = 5.0
"""Seconds between two looks without --interval."""
WINDOW = 15.0
"""Seconds of which a rate is the average, unless the interval is longer."""
SHORTEST_NAME = 12
DESCRIPTION = """\
Show groups by their lag, again and again until Ctrl-C, or --count times. READ/S is the number of
records that a group commits or acknowledges per second, and NEW/S the number that its partitions
get. Both are averages of about 15 seconds, or of the time between two looks if that is longer.

A terminal shows the last look. A pipe gets all looks as text, or with --json as an object on each
line.

The exit status is 1 if a group has an error in the last look. The command ends at once if no named
group exists.
"""
_HEADINGS = ("GROUP", "MEMBERS", "LAG", "BEHIND", "READ/S", "NEW/S", "STATE")
_CLEAR, _HOME, _ERASE_LINE, _ERASE_REST = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"


class Look(NamedTuple):
    """The lag of groups at one moment."""

    at: float
    """Seconds of a clock that only measures durations."""
    groups: dict[str, GroupLag]
    errors: dict[str, KafkaError]


class Row(NamedTuple):
    """A group as it is shown."""

    group: str
    type: str | None
    state: str | None
    members: int | None
    lag: int | None
    seconds: float | None
    read: float | None
    """Records per second that the group has done, None if no partition is known in two looks."""
    new: float | None
    """Records per second that its partitions have got."""
    error: str | None = None


ORDERS: dict[str, Callable[[Row], Any]] = {
    "lag": lambda row: -(row.lag or 0),
    "behind": lambda row: -(row.seconds or 0),
    "read": lambda row: -(row.read or 0),
    "new": lambda row: -(row.new or 0),
    "members": lambda row: -(row.members or 0),
    "group": lambda _: 0,
}
"""What --sort sorts by. Groups that are equal are sorted by their name."""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "top",
        help="show groups by lag and rate, refreshed",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", metavar="G", help="groups to show (all)")
    parser.add_argument(
        "--interval",
        type=above_zero,
        default=INTERVAL,
        metavar="SECONDS",
        help="time between two looks (%(default)s)",
    )
    parser.add_argument(
        "--count", type=whole_above_zero, metavar="N", help="end after N looks with rates"
    )
    parser.add_argument(
        "--sort",
        choices=tuple(ORDERS),
        default="lag",
        help="order of the groups, the largest value first (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each look")
    _client.add_to(parser, time_for="the requests")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show groups until Ctrl-C, or the given number of times. Return the exit status."""
    return _client.run("top", partial(_run, options))


def _run(options: argparse.Namespace) -> int:
    has_screen = (
        not options.json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    )
    with _client.admin_of(options) as admin:
        looks = deque([_look(options, admin)])
        errors = looks[0].errors.values()
        is_absent = all(isinstance(error, GroupIdNotFoundError) for error in errors)
        if errors and is_absent and not looks[0].groups:
            raise next(iter(errors))
        if has_screen:
            print(_CLEAR, end="")
            _draw(options, rows_of(looks[0], looks[0], options.sort))
        printed = 0
        while printed != options.count:
            time.sleep(options.interval)
            try:
                looks.append(_look(options, admin))
            except KafkaError as error:  # brokers restart, and the next look may succeed
                print(f"kohort top: {error}", file=sys.stderr)
                continue
            while len(looks) > 2 and looks[1].at <= looks[-1].at - WINDOW:
                looks.popleft()
            rows = rows_of(looks[0], looks[-1], options.sort)
            if has_screen:
                _draw(options, rows)
            else:
                if printed and not options.json:
                    print()
                print(_as_json(rows) if options.json else _as_text(rows), flush=True)
            printed += 1
    return int(any(row.error for row in rows_of(looks[-1], looks[-1])))


def _look(options: argparse.Namespace, admin: KafkaAdminClient) -> Look:
    timeout_ms = options.timeout * 1000
    names: list[str] = options.groups
    if not names:
        listed = admin.list_groups(timeout_ms=timeout_ms).raise_errors()
        names = [each.group_id for each in listed if each.type in WITH_LAG]
    at = time.monotonic()
    lags = admin.group_lag(names, timeout_ms=timeout_ms)
    errors = {
        name: error
        for name, error in lags.errors.items()
        # A group that ended after the list is none.
        if options.groups or not isinstance(error, GroupIdNotFoundError)
    }
    return Look(at, dict(lags), errors)


# -- figures ----------------------------------------------------------------------------------


def rows_of(before: Look, after: Look, order: str = "lag") -> list[Row]:
    """Return the groups of a look, with the rates since the other look."""
    seconds = after.at - before.at
    rows = []
    for name, lag in after.groups.items():
        former = before.groups.get(name) if seconds > 0 else None
        read = new = None
        if former is not None:
            pairs = [
                (former.partitions[tp], at)
                for tp, at in lag.partitions.items()
                if tp in former.partitions
            ]
            done = _done_in_queue if lag.group.type == SHARE else _committed
            read = _rate_of([done(one, two) for one, two in pairs], seconds)
            new = _rate_of([(one.end, two.end) for one, two in pairs], seconds)
        group = lag.group
        members = len(group.members)
        error = next(errors_within(lag), None)
        rows.append(
            Row(name, group.type, group.state, members, lag.records, lag.seconds, read, new, error)
        )
    for name, failure in after.errors.items():
        rows.append(Row(name, *(None,) * 7, error=str(failure)))
    return sorted(rows, key=lambda row: (ORDERS[order](row), row.group))


def _committed(one: PartitionLag, two: PartitionLag) -> _Pair:
    return one.committed, two.committed


def _done_in_queue(one: PartitionLag, two: PartitionLag) -> _Pair:
    """Return how many records of a log were done. The start of a share group may lag behind.

    Brokers before Kafka 4.3 report nothing but the start.
    """
    if one.records is None or two.records is None:
        return _committed(one, two)
    return one.end - one.records, two.end - two.records


def _rate_of(offsets: Iterable[_Pair], seconds: float) -> float | None:
    """Return the records per second between two offsets of each partition.

    A partition counts only if both are known, and without one the rate is unknown. An offset that
    was set back, and a topic that was recreated, are no progress.
    """
    grown = [
        max(0, after - before)
        for before, after in offsets
        if before is not None and after is not None
    ]
    return sum(grown) / seconds if grown else None


# -- output -----------------------------------------------------------------------------------


def _draw(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Replace what the terminal shows. Nothing is erased first, so that it does not flicker."""
    width, height = shutil.get_terminal_size()
    lines = screen(rows, options.interval, width, height)
    print(_HOME + "".join(f"{line}{_ERASE_LINE}\n" for line in lines) + _ERASE_REST, end="")
    sys.stdout.flush()


def screen(rows: Sequence[Row], interval: float, width: int, height: int) -> list[str]:
    """Return the lines for a terminal of this size. The cursor is on the line after them."""
    lines = [f"{_now()}  {_count(rows)}, every {interval:g} s"[:width]]
    room = max(1, height - len(lines) - 2)  # lines of the table, without the last one
    shown = min(len(rows), room)
    table = _table(rows[:shown], width)
    while len(table) > room and shown:
        shown -= 1
        table = _table(rows[:shown], width)
    left = len(rows) - shown
    return [*lines, *table, *([f"... {left:,} more"] if left else [])]


def _as_text(rows: Sequence[Row]) -> str:
    return "\n".join([f"{_now()}  {_count(rows)}", *_table(rows, None)])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _count(rows: Sequence[Row]) -> str:
    return "1 group" if len(rows) == 1 else f"{len(rows):,} groups"


def _table(rows: Sequence[Row], width: int | None) -> list[str]:
    cells = [_cells(row) for row in rows]
    if width is not None:
        sizes = [2 + max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
        room = width - sum(sizes[1:])
        if room < SHORTEST_NAME:  # the last column goes below
            room = max(SHORTEST_NAME, room + sizes[-1])
        for line in cells:
            if len(line[0]) > room:
                line[0] = line[0][: room - 1] + "~"
    return render(_HEADINGS, cells, width).splitlines()


def _cells(row: Row) -> list[str]:
    return [
        escaped(row.group),
        number(row.members),
        number(row.lag),
        duration(row.seconds),
        _rate(row.read),
        _rate(row.new),
        ": ".join(filter(None, (row.state, row.error))),
    ]


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _as_json(rows: Sequence[Row]) -> str:
    groups = [
        {
            "group": row.group,
            "type": row.type,
            "state": row.state,
            "members": row.members,
            "lag": row.lag,
            "seconds": row.seconds,
            "read_per_second": row.read,
            "new_per_second": row.new,
        }
        | ({"error": row.error} if row.error else {})
        for row in rows
    ]
    return json.dumps({"time": _now(), "groups": groups})
