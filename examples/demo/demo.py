"""Sequence of the demo: load, read, check, report."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.flights import CarrierFigures, Flights
from examples.demo.ledger import Ledger, Reading
from examples.demo.members import SESSION_MS, DemoMember, Report, SparkMember
from examples.demo.moves import Moves
from examples.demo.spark import missing_requirement
from examples.demo.tables import (
    carriers_table,
    colour_of,
    members_table,
    moves_table,
    partitions_table,
)
from kohort.history import read_history, to_html
from kohort.testing import Cluster

TOPIC, GROUP, PARTITIONS = "flights", "airline", 6
LOAD_SIZE = 5_000
PAGE = Path(__file__).parents[2] / "build" / "demo" / "history.html"
"""Page of who owned which partition when, which the demo writes."""
ONE_MEMBER_S = 24.0
"""Seconds in which one member alone would read all flights, so that others can join and leave."""
HEARTBEAT_MS = 300
"""Interval of heartbeats, so that the moves of partitions are seen soon."""
NO_PROGRESS_S = 120.0
"""Seconds without a new record after which the demo gives up."""

M = TypeVar("M", bound=DemoMember)


class Demo:
    """Demo with its cluster, its members and its checks."""

    def __init__(self, *, flights: int | None, spark: bool) -> None:
        self._console = Console(highlight=False)
        self._limit = flights
        self._spark = spark
        self._reports: queue.Queue[Report] = queue.Queue(maxsize=1_000)
        self._members: list[DemoMember] = []
        self._started = time.monotonic()
        self._pace = 1.0
        self._moves = Moves(range(PARTITIONS))

    def run(self) -> int:
        """Run the demo. Return 0 if all checks pass, else 1."""
        flights = Flights(self._limit)
        expected = flights.by_carrier()
        self._pace = max(1.0, len(flights) / ONE_MEMBER_S)
        with Cluster(
            brokers=3,
            topics={TOPIC: PARTITIONS},
            consumer_session_timeout_ms=SESSION_MS,
            consumer_heartbeat_interval_ms=HEARTBEAT_MS,
        ) as cluster:
            self._say(f"A cluster of three brokers in this process: {cluster.bootstrap_servers}")
            try:
                query = self._start_spark(cluster)  # Spark starts slowly, so it is started first
                ledger = self._load(cluster, flights)
                faults = self._read(cluster, ledger, query)
                faults += self._prove(cluster, ledger, expected)
                if query is not None and not faults:
                    faults += self._count_with_spark(ledger, query, expected)
                self._write_history(cluster)
            except KeyboardInterrupt:
                self._say("[red]interrupted[/]")
                return 130
            finally:
                for member in self._members:
                    member.destroy()
        for fault in faults:
            self._console.print(f"[bold red]WRONG:[/] {escape(fault)}")
        if not faults:
            self._say("[bold green]Everything that was written was read.[/]")
        page = f"The history of the group, to open in a browser: {escape(str(PAGE))}"
        self._console.print(page, soft_wrap=True)  # a path in two lines cannot be opened
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

    def _start(self, kind: type[M], cluster: Cluster, name: str) -> M:
        arguments = [cluster.bootstrap_servers, TOPIC, GROUP, str(self._pace)]
        member = kind(name, arguments, self._reports)
        self._members.append(member)
        self._say(f"[{colour_of(name)}]{name}[/] starts, process {member.pid}")
        return member

    def _start_spark(self, cluster: Cluster) -> SparkMember | None:
        missing = (
            missing_requirement() if self._spark else "Spark is left out because of --no-spark"
        )
        if missing is not None:
            self._say(missing)
            return None
        return self._start(SparkMember, cluster, "spark")

    def _wait_for(self, what: Callable[[], object], ledger: Ledger, member: DemoMember) -> bool:
        """Take reports until a condition holds. Return False if the member ends or is too slow."""
        deadline = time.monotonic() + NO_PROGRESS_S
        while not what():
            self._take_report(ledger)
            if not member.alive or time.monotonic() > deadline:
                return False
        return True

    def _read(self, cluster: Cluster, ledger: Ledger, query: SparkMember | None) -> list[str]:
        """Read all records while one member joins, one leaves and one is killed.

        Members that have read everything stay until the other members have joined and left.
        """
        if query is not None:
            if not self._wait_for(lambda: "ready" in query.reports_by_event, ledger, query):
                return ["Spark does not start"]
            query.send_order("start")
            if not self._wait_for(lambda: query.rebalances, ledger, query):
                return ["the streaming query did not join the group"]
        first = self._start(DemoMember, cluster, "member-a")
        second = self._start(DemoMember, cluster, "member-b")
        third: DemoMember | None = None
        latest = time.monotonic()
        with self._progress() as progress:
            task = progress.add_task("reading flights", total=ledger.total)
            while second.running or not ledger.complete:
                if self._take_report(ledger):
                    latest = time.monotonic()
                    progress.update(task, completed=len(ledger.readers))
                elif time.monotonic() - latest > NO_PROGRESS_S:
                    return [f"no new record for {NO_PROGRESS_S:.0f} s"]
                if third is None and ledger.fraction > 0.15:
                    third = self._start(DemoMember, cluster, "member-c")
                if first.running and third is not None and self._can_leave(first, third, ledger):
                    self._say(f"[{colour_of(first.name)}]{first.name}[/] gets the order to leave")
                    self._leave(first)
                may_kill = second.rebalances and not first.running and ledger.fraction > 0.6
                if second.running and may_kill:
                    self._say(f"[{colour_of(second.name)}]{second.name}[/] is killed (SIGKILL)")
                    self._moves.record_end(second.name, "killed")
                    second.kill()
        if query is not None:  # it commits its last batch when it leaves
            self._leave(query)
            self._wait_for(lambda: "left" in query.reports_by_event, ledger, query)
        if third is not None:
            # The offsets of the killed member's last records are not committed.
            self._wait_for(lambda: ledger.covered_by(self._committed(cluster)), ledger, third)
        for member in self._members:
            if member.running:
                self._leave(member)
        for member in self._members:
            if member is not query:
                member.wait(30)
        while not self._reports.empty():
            self._take_report(ledger)
        return []

    @staticmethod
    def _can_leave(first: DemoMember, third: DemoMember, ledger: Ledger) -> bool:
        """True if both members are in the group and the third reads, or nothing is left to read."""
        works = ledger.by_member[third.name] or ledger.complete
        return bool(first.rebalances and third.rebalances and works and ledger.fraction > 0.4)

    def _leave(self, member: DemoMember) -> None:
        self._moves.record_end(member.name, "left")
        member.leave()

    @staticmethod
    def _committed(cluster: Cluster) -> dict[int, int]:
        return {tp.partition: at.offset for tp, at in cluster.committed(GROUP).items()}

    def _take_report(self, ledger: Ledger) -> bool:
        """Take one report of a member. Return True if it has a record that no member had read."""
        try:
            member, report = self._reports.get(timeout=0.5)
        except queue.Empty:
            return False
        if report is None:
            return False
        match report["event"]:
            case "read":
                before = len(ledger.readers)
                for row in report["records"]:
                    ledger.add(member.name, Reading(*row))
                return len(ledger.readers) > before
            case "left":
                member.reports_by_event["left"] = report
                self._say(f"[{colour_of(member.name)}]{member.name}[/] has left the group")
            case "ready" | "counted" as event:
                member.reports_by_event[event] = report
            case callback:
                self._show_callback(member, callback, report)
        return False

    def _show_callback(self, member: DemoMember, callback: str, report: dict[str, Any]) -> None:
        member.rebalances += callback == "assigned"
        if report["partitions"]:  # empty in a cooperative rebalance without new ones
            partitions = ", ".join(map(str, report["partitions"]))
            self._say(
                f"[{colour_of(member.name)}]{member.name}[/] on_partitions_{callback}  {partitions}"
            )
        seconds = time.monotonic() - self._started
        self._moves.record_callback(callback, member.name, report["partitions"], seconds)

    # -- proving ------------------------------------------------------------------------------

    def _prove(
        self, cluster: Cluster, ledger: Ledger, expected: dict[str, CarrierFigures]
    ) -> list[str]:
        committed = self._committed(cluster)
        killed = [member.name for member in self._members if member.ended_by == "killed"]
        self._console.print(members_table(ledger, self._members))
        self._console.print(moves_table(self._moves, self._members))
        self._console.print(partitions_table(ledger, committed))
        found = ledger.by_carrier()
        self._console.print(carriers_table({"data set": expected, "group": found}))
        self._say(
            f"{len(ledger.readers):,} of {ledger.total:,} records read; "
            f"{len(ledger.duplicates()):,} of them twice, which "
            f"{' and '.join(killed) or 'no member'} had read and not committed when it was killed"
        )
        faults = ledger.faults(killed[0] if killed else "", committed)
        if found != expected:
            faults.append("flights and delays of the records are not those of the data set")
        for name in ("joined", "left", "killed"):
            if name == "joined" and not any(m.name == "member-c" for m in self._members):
                faults.append("the third member never joined")
            elif name != "joined" and not any(one.ended_by == name for one in self._members):
                faults.append(f"no member {name}")
        return faults

    @staticmethod
    def _write_history(cluster: Cluster) -> None:
        history = read_history(GROUP, moments=50, bootstrap_servers=cluster.bootstrap_servers)
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(to_html(history), encoding="utf-8")

    def _count_with_spark(
        self, ledger: Ledger, query: SparkMember, expected: dict[str, CarrierFigures]
    ) -> list[str]:
        self._say("Spark counts the records of the topic in one batch query")
        query.send_order("count")
        if not self._wait_for(lambda: "counted" in query.reports_by_event, ledger, query):
            return ["Spark does not count"]
        carriers = query.reports_by_event["counted"]["carriers"]
        found = {carrier: CarrierFigures(*figures) for carrier, figures in carriers.items()}
        query.stop()
        self._console.print(carriers_table({"data set": expected, "Spark": found}))
        return [] if found == expected else ["Spark's flights and delays are not the data set's"]
