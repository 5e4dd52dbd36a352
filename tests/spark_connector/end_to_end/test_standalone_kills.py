"""Queries on a standalone Spark cluster of three workers, whose processes are killed under load.

The queries write to a sink that keeps the last write of each batch, as idempotent sinks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.members import Members
from tests.interop.peers import APIS, Settings
from tests.spark_connector.end_to_end import processes
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.ledgers import Place, account
from tests.spark_connector.end_to_end.pumps import Pump
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.spark_connector.end_to_end.test_standalone import SETTINGS
from tests.spark_connector.end_to_end.waiting import look_again_later, wait_until
from tests.support.kafka_server import KafkaServer

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.timeout(3600),
]
PARTITIONS = 6
RATE = 300
SHARE = 60
"""Records that each query has to read after a kill before the next one."""
KILLS = {
    "drivers": {"driver": 10},
    "executors": {"executor": 3, "Python workers": 3, "worker": 3},
    "sources and brokers": {"source": 3, "broker": 3},
}
Unique = Callable[[str], str]
Record = Callable[[str, object], None]


class KilledQueries:
    """Queries of one application that are started again after their end, as by a supervisor."""

    def __init__(
        self, cluster: StandaloneCluster, kafka: KafkaServer, plans: list[Plan], folder: Path
    ) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._plans = plans
        self._folder = folder
        self._stack = ExitStack()
        self.unfinished: set[Place] = set()
        """Records of batches that were not finished, or not yet committed, at the end of a run."""
        self._start_application()

    def rows(self) -> list[int]:
        """Return the number of rows that each query has written."""
        return [len(plan.ledger.rows()) for plan in self._plans]

    def revive(self) -> None:
        """Start those queries again that have failed."""
        for plan in self._plans:
            if not self._application.do("state", name=plan.name)["active"]:
                self._start(plan)

    def kill(self, what: str) -> None:
        """Kill processes of one kind, and start what Spark does not start."""
        if what == "driver":
            self._application.kill()
            self._start_application()
        elif what == "source":
            sources = processes.runners(self._application.jvm)
            assert sources
            processes.kill(*sources)
        elif what == "worker":
            self._cluster.replace_worker()
        elif what == "broker":
            self._kafka.kill()
            self._kafka.start()
        else:
            executors, workers = self._cluster.executors(), self._cluster.python_workers()
            found = executors[:1] if what == "executor" else workers
            assert found
            processes.kill(*found)

    def finish(self) -> None:
        """Stop the queries between two batches."""
        for plan in self._plans:
            self._application.do("finish", name=plan.name)

    def end(self) -> None:
        """End the application."""
        self._stack.close()

    def _start_application(self) -> None:
        settings = {"spark.master": self._cluster.master, **SETTINGS}
        self._application = self._stack.enter_context(ApplicationProcess(self._folder, **settings))
        for plan in self._plans:
            self._start(plan)

    def _start(self, plan: Plan) -> None:
        for batch in plan.checkpoint.begun()[-2:]:
            self.unfinished |= plan.checkpoint.ranges(batch)
        self._application.start(plan)


@pytest.fixture
def own_kafka(start_kafka: Callable[[], KafkaServer]) -> Iterator[KafkaServer]:
    """A node that no other test uses, because it is killed."""
    server = start_kafka()
    yield server
    server.kill()


@pytest.mark.parametrize("membership", ["in a group", "without a group"])
@pytest.mark.parametrize("what", KILLS)
def test_no_record_is_missing_or_twice_after_kills(
    own_kafka: KafkaServer,
    members: Members,
    unique: Unique,
    tmp_path: Path,
    record_property: Record,
    what: str,
    membership: str,
) -> None:
    broker = Broker(own_kafka.bootstrap_servers)
    topic, group = broker.create_topic(unique("kills"), PARTITIONS), unique("kills")
    feed = broker.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "executorCores": "3",
    }
    names = ["alone"]
    if membership == "in a group":
        names = ["first", "second"]
        options["kafka.group.id"] = group
        options["kafka.session.timeout.ms"] = "30000"
        options["kafka.heartbeat.interval.ms"] = "300"
        options["rebalanceWait"] = "280s"
        settings = Settings(
            broker.bootstrap_servers, topic, group, "plain", "cooperative-sticky", session_ms=30_000
        )
        members.join(APIS["sync"], settings)
    plans = [Plan(name, str(tmp_path / name), options, workers=True) for name in names]

    def readers() -> dict[str, Iterable[tuple[int, int, bytes]]]:
        queries = {plan.name: plan.ledger.reads() for plan in plans}
        return {**queries, **{member.name: list(member.reads) for member in members.all}}

    with StandaloneCluster(tmp_path / "workers", 3) as cluster:
        cluster.wait_ready()
        queries = KilledQueries(cluster, own_kafka, plans, tmp_path)

        def go_on(before: list[int]) -> bool:
            queries.revive()
            read = zip(queries.rows(), before, strict=True)
            return all(now >= then + SHARE for now, then in read) and bool(cluster.python_workers())

        def all_is_read() -> bool:
            queries.revive()
            return not account(feed.written, readers()).missing

        try:
            with Pump(feed, PARTITIONS, RATE):
                wait_until(lambda: go_on([0] * len(plans)), look_again_later)
                for kind in in_turn(KILLS[what]):
                    queries.kill(kind)
                    before = queries.rows()
                    wait_until(lambda: go_on(before), look_again_later)  # noqa: B023
            wait_until(all_is_read, look_again_later)
            queries.finish()
        finally:
            queries.end()
        members.leave()

    found = account(feed.written, readers())
    for name, count in KILLS[what].items():
        record_property(f"killed: {name}", count)
    record_property("written", len(feed.written))
    record_property("read by several members", len(found.shared))
    for plan in plans:
        record_property(f"rows of {plan.name}", len(plan.ledger.rows()))
        plan.ledger.assert_replays_are_exact()
    if what == "sources and brokers":
        # A broker that was away ends sessions, and then the next owner begins at the last commit.
        found.twice.pop("plain", None)
    else:
        assert found.shared.keys() <= queries.unfinished
    found.assert_whole()
    if membership == "in a group":
        assert broker.committed(group) == feed.ends()


def in_turn(times: Mapping[str, int]) -> list[str]:
    """Return each kind as often as it has to be killed, one after the other in turn."""
    return [kind for turn in range(max(times.values())) for kind in times if turn < times[kind]]
