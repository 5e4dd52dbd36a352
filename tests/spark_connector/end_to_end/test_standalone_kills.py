"""A query on a standalone Spark cluster of three workers, whose processes are killed under load."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.waiting import look_again_soon
from tests.spark_connector.end_to_end import processes
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.choosing import plainly_on
from tests.spark_connector.end_to_end.ledgers import account
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.spark_connector.end_to_end.test_standalone import SETTINGS
from tests.spark_connector.end_to_end.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.timeout(570),
]
PARTITIONS = 6
KILLS = {"driver": 2, "source": 2, "executor": 2, "Python workers": 2, "worker": 1}


class KilledQuery:
    """A query whose application is started again after its end, as by a supervisor."""

    def __init__(self, cluster: StandaloneCluster, plan: Plan, folder: Path) -> None:
        self._cluster = cluster
        self._plan = plan
        self._folder = folder
        self._stack = ExitStack()
        self.kills: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """Start the application and its query."""
        settings = {"spark.master": self._cluster.master, **SETTINGS}
        self.application = self._stack.enter_context(ApplicationProcess(self._folder, **settings))
        self.application.start(self._plan)

    def revive(self) -> None:
        """Start the query again if it has failed."""
        if not self.application.do("state", name=self._plan.name)["active"]:
            self.application.start(self._plan)

    def kill(self, what: str) -> None:
        """Kill processes of one kind, and start what Spark does not start."""
        if what == "driver":
            self.application.kill()
            self.start()
        elif what == "source":
            sources = processes.runners(self.application.jvm)
            assert sources
            processes.kill(*sources)
        elif what == "worker":
            self._cluster.replace_worker()
        else:
            executors, workers = self._cluster.executors(), self._cluster.python_workers()
            found = executors[:1] if what == "executor" else workers
            assert found
            processes.kill(*found)
        self.kills[what] += 1

    def end(self) -> None:
        """End the application."""
        self._stack.close()


@plainly_on("cluster")
def test_no_record_is_missing_or_twice_after_kills_of_all_kinds(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = broker.create_topic(unique("kills"), PARTITIONS), unique("kills")
    feed = broker.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "executorCores": "3",
        "kafka.group.id": group,
        "kafka.session.timeout.ms": "10000",
    }
    plan = Plan("killed", str(tmp_path / "killed"), options, workers=True)
    order = [what for what, times in KILLS.items() for _ in range(times)]
    random.Random(7).shuffle(order)

    def is_read() -> bool:
        query.revive()
        return len(account(feed.written, {plan.name: plan.ledger.reads()}).missing) == 0

    def meanwhile() -> None:
        feed.start()
        look_again_soon()

    with StandaloneCluster(tmp_path / "workers", 3) as cluster:
        cluster.wait_ready()
        query = KilledQuery(cluster, plan, tmp_path)
        try:
            feed.write(300)
            wait_until(lambda: cluster.python_workers() and plan.ledger.rows(), meanwhile)
            for what in order:
                query.kill(what)
                before = len(plan.ledger.rows())
                feed.write(100)

                def goes_on(before: int = before) -> bool:
                    query.revive()
                    return len(plan.ledger.rows()) > before and bool(cluster.python_workers())

                wait_until(goes_on, meanwhile)
            feed.write(100)
            wait_until(is_read, look_again_soon)
            wait_until(lambda: broker.committed(group) == feed.ends(), look_again_soon)
        finally:
            query.end()

    assert dict(query.kills) == KILLS
    plan.ledger.assert_replays_are_exact()
    account(feed.written, {plan.name: plan.ledger.reads()}).assert_whole()
