"""The demo from beginning to end."""

from __future__ import annotations

import queue
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kohort.cli.demo import _spark
from kohort.cli.demo._flights import CarrierFigures, Flights
from kohort.cli.demo._ledger import Ledger, Reading
from kohort.cli.demo._members import Member, Told
from kohort.cli.demo._tables import carriers_table, colour_of, members_table, partitions_table
from kohort.testing import Cluster

TOPIC, GROUP, PARTITIONS = "flights", "airline", 6
LOAD_SIZE = 5_000
MEMBER_SECONDS = 12.0
"""So long a member alone would work on all flights: time for the others to come and go."""
PATIENCE = 120.0
"""Seconds without a new record after which the demo gives up."""


class Demo:
    """Loads, reads, proves, and says so."""

    def __init__(self, *, flights: int | None, spark: bool) -> None:
        self._console = Console(highlight=False)
        self._limit = flights
        self._spark = spark
        self._told: queue.Queue[Told] = queue.Queue(maxsize=1_000)
        self._members: list[Member] = []
        self._started = time.monotonic()
        self._pace = 1.0

    def run(self) -> int:
        """The exit status: 0 if everything came out as it must, else 1."""
        flights = Flights(self._limit)
        expected = flights.by_carrier()
        with Cluster(brokers=3, topics={TOPIC: PARTITIONS}) as cluster:
            self._say(f"A cluster of three brokers in this process: {cluster.bootstrap_servers}")
            ledger = self._load(cluster, flights)
            try:
                self._read(cluster, ledger)
            except KeyboardInterrupt:
                self._say("[red]interrupted[/]")
                return 130
            finally:
                for member in self._members:
                    member.destroy()
            faults = self._prove(cluster, ledger, expected)
            faults += self._read_with_spark(cluster, expected)
        for fault in faults:
            self._console.print(f"[bold red]WRONG:[/] {escape(fault)}")
        if not faults:
            self._say("[bold green]Everything that was written was read.[/]")
        return 1 if faults else 0

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {text}")

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )

    # -- writing ------------------------------------------------------------------------------

    def _load(self, cluster: Cluster, flights: Flights) -> Ledger:
        with self._progress() as progress:
            task = progress.add_task("loading flights", total=len(flights))
            for messages in flights.messages(LOAD_SIZE):
                cluster.produce(TOPIC, messages)
                progress.advance(task, len(messages))
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for record in cluster.records(TOPIC):
            ends[record.partition] = record.offset + 1
        self._say(f"{sum(ends.values()):,} flights in {PARTITIONS} partitions of {TOPIC!r}")
        return Ledger(ends)

    # -- reading ------------------------------------------------------------------------------

    def _start(self, cluster: Cluster, name: str) -> Member:
        arguments = [cluster.bootstrap_servers, TOPIC, GROUP, str(self._pace)]
        member = Member(name, arguments, self._told)
        self._members.append(member)
        self._say(f"[{colour_of(name)}]{name}[/] starts, process {member.pid}")
        return member

    def _read(self, cluster: Cluster, ledger: Ledger) -> None:
        """Read until nothing is left; on the way one member joins, one leaves, one is killed."""
        self._pace = max(1.0, ledger.total / MEMBER_SECONDS)
        first, second = self._start(cluster, "member-a"), self._start(cluster, "member-b")
        third: Member | None = None
        latest = time.monotonic()
        with self._progress() as progress:
            task = progress.add_task("reading flights", total=ledger.total)
            while not ledger.complete:
                if self._take(ledger):
                    latest = time.monotonic()
                    progress.update(task, completed=len(ledger.readers))
                elif time.monotonic() - latest > PATIENCE:
                    self._say(f"[red]no new record for {PATIENCE:.0f} s[/]")
                    return
                if third is None and ledger.fraction > 0.15:
                    third = self._start(cluster, "member-c")
                if first.running and third is not None and ledger.by_member[third.name]:
                    if ledger.fraction > 0.4:
                        self._say(f"[{colour_of(first.name)}]{first.name}[/] is asked to leave")
                        first.leave()
                if second.running and not first.running and ledger.fraction > 0.6:
                    self._say(f"[{colour_of(second.name)}]{second.name}[/] is killed (SIGKILL)")
                    second.kill()
        for member in self._members:
            if member.running:
                member.leave()
        for member in self._members:
            member.wait(30)
        while not self._told.empty():
            self._take(ledger)

    def _take(self, ledger: Ledger) -> bool:
        """Take one message of a member; True if it held a record that nobody had read before."""
        try:
            member, told = self._told.get(timeout=0.5)
        except queue.Empty:
            return False
        if told is None:
            return False
        match told["event"]:
            case "read":
                before = len(ledger.readers)
                for row in told["records"]:
                    ledger.add(member.name, Reading(*row))
                return len(ledger.readers) > before
            case "left":
                self._say(f"[{colour_of(member.name)}]{member.name}[/] has left the group")
            case callback:
                self._show_callback(member, callback, told)
        return False

    def _show_callback(self, member: Member, callback: str, told: dict[str, Any]) -> None:
        member.rebalances += callback == "assigned"
        partitions = ", ".join(str(one) for one in told["partitions"]) or "none"
        self._say(
            f"[{colour_of(member.name)}]{member.name}[/] on_partitions_{callback}"
            f"  generation {told['generation']}  partitions {partitions}"
        )

    # -- proving ------------------------------------------------------------------------------

    def _prove(
        self, cluster: Cluster, ledger: Ledger, expected: dict[str, CarrierFigures]
    ) -> list[str]:
        committed = {tp.partition: at.offset for tp, at in cluster.committed(GROUP).items()}
        killed = [member.name for member in self._members if member.ended_by == "killed"]
        self._console.print(members_table(ledger, self._members))
        self._console.print(partitions_table(ledger, committed))
        found = ledger.by_carrier()
        self._console.print(carriers_table({"data set": expected, "group": found}))
        self._say(
            f"{len(ledger.readers):,} of {ledger.total:,} records read; "
            f"{len(ledger.duplicates()):,} of them twice, which "
            f"{' and '.join(killed) or 'nobody'} had read and not committed when it was killed"
        )
        faults = ledger.faults(killed[0] if killed else "", committed)
        if found != expected:
            faults.append("flights and delays of the records are not those of the data set")
        for name in ("joined", "left", "killed"):
            if name == "joined" and len(self._members) < 3:
                faults.append("the third member never joined")
            elif name != "joined" and not any(one.ended_by == name for one in self._members):
                faults.append(f"no member {name}")
        return faults

    def _read_with_spark(self, cluster: Cluster, expected: dict[str, CarrierFigures]) -> list[str]:
        if not self._spark:
            return []
        missing = _spark.what_is_missing()
        if missing is not None:
            self._say(missing)
            return []
        self._say("Spark reads the same topic")
        found = _spark.flights_by_carrier(cluster.bootstrap_servers, TOPIC)
        self._console.print(carriers_table({"data set": expected, "Spark": found}))
        return [] if found == expected else ["Spark's flights and delays are not the data set's"]
