"""Tables that the demo prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from examples.demo.flights import CarrierFigures
from examples.demo.ledger import Ledger
from examples.demo.members import DemoMember
from examples.demo.moves import Moves

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def colour_of(name: str) -> str:
    """Return a member's colour, by the last letter of its name."""
    return COLOURS[ord(name[-1]) % len(COLOURS)]


def members_table(ledger: Ledger, members: Sequence[DemoMember]) -> Table:
    """Return the table of members and their work."""
    table = Table(title="Members", title_justify="left")
    table.add_column("member")
    for heading in ("process", "rebalances", "records read"):
        table.add_column(heading, justify="right")
    table.add_column("partitions")
    table.add_column("ended")
    for member in members:
        partitions = ", ".join(str(one) for one in sorted(ledger.partitions_of[member.name]))
        read = f"{ledger.by_member[member.name]:,}"
        name = f"[{colour_of(member.name)}]{member.name}[/]"
        table.add_row(
            name, str(member.pid), str(member.rebalances), read, partitions, member.ended_by
        )
    return table


def moves_table(moves: Moves, members: Sequence[DemoMember]) -> Table:
    """Return the table of owners, with a row for each time that every partition has one owner."""
    table = Table(title="Partitions that move", title_justify="left")
    table.add_column("second", justify="right")
    table.add_column("after")
    for member in members:
        table.add_column(f"[{colour_of(member.name)}]{member.name}[/]")
    for moment in moves.moments:
        shares = (moment.owners.get(member.name, ()) for member in members)
        numbers = (" ".join(map(str, sorted(share))) for share in shares)
        table.add_row(f"{moment.seconds:.1f}", moment.after, *numbers)
    return table


def partitions_table(ledger: Ledger, committed: dict[int, int]) -> Table:
    """Return the table of records and offsets per partition."""
    table = Table(title="Partitions", title_justify="left")
    for heading in ("partition", "written", "read", "missing", "read twice", "committed", "lag"):
        table.add_column(heading, justify="right")
    twice = [partition for partition, _ in ledger.duplicates()]
    for partition, end in sorted(ledger.ends.items()):
        missing = ledger.missing(partition)
        at = committed.get(partition, 0)
        row = (partition, end, end - missing, missing, twice.count(partition), at, end - at)
        table.add_row(*(f"{figure:,}" for figure in row))
    return table


def carriers_table(columns: dict[str, dict[str, CarrierFigures]]) -> Table:
    """Return the table of flights and mean delay per carrier, with a column for each source."""
    table = Table(title="Flights and mean departure delay", title_justify="left")
    table.add_column("carrier")
    for source in columns:
        table.add_column(f"flights\n{source}", justify="right")
        table.add_column(f"delay, min\n{source}", justify="right")
    table.add_column("same", justify="center")
    carriers = sorted({carrier for figures in columns.values() for carrier in figures})
    for carrier in carriers:
        found = [figures.get(carrier) for figures in columns.values()]
        row = [carrier]
        for one in found:
            mean = None if one is None else one.mean_delay
            row.append("-" if one is None else f"{one.flights:,}")
            row.append("-" if mean is None else f"{mean:.2f}")
        table.add_row(*row, "yes" if all(one == found[0] for one in found) else "[bold red]NO[/]")
    return table
